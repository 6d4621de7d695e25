"""Lists the files below a folder, and raises an error for a folder that cannot be read."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

_MOST_ENTRIES = 10_000  # of a linked folder, which may be a whole file system


def walk_visible(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder that is not hidden, in no order; links to folders are yielded, and not followed.

    `Path.rglob` leaves out a folder whose permissions forbid to list it: a training would miss its files.

    Raises:
        OSError: a folder cannot be listed; a folder that does not exist has no files.
    """
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))


def without_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are no folders, which are files.

    Raises:
        FileNotFoundError: a path is a link to a missing file, or a pipe or a device, which would be waited for.
    """
    files = [path for path in paths if not path.is_dir()]
    if other := next((file for file in files if not file.is_file()), None):
        what = "a link to a missing file" if other.is_symlink() else "not a regular file"
        raise FileNotFoundError(f"{other}: {what}; restore the file, or remove {other.name}")
    return files


def require_no_linked_folder(folder: Path, paths: Iterable[Path], suffix: str) -> None:
    """Refuse a link to a folder with files of a suffix, because a part of a table would be missing.

    Args:
        folder: the folder of the table.
        paths: what `walk_visible` has found in it.
        suffix: of the files of the table.

    Raises:
        FileNotFoundError: there is such a link, and it leads out of the folder.
    """
    whole = folder.resolve()
    for path in paths:
        if not path.is_symlink() or not path.is_dir():
            continue
        target = path.resolve()
        # A link to a folder inside, such as `latest`, has files that are read there.
        is_inside = target.is_relative_to(whole) or whole.is_relative_to(target)
        if not is_inside and _has_file(path, suffix):
            raise FileNotFoundError(
                f"{path}: a link to a folder with {suffix} files, which is not followed; link its files instead, or "
                "remove the link"
            )


def _has_file(folder: Path, suffix: str) -> bool:
    """Return whether a file of a suffix is among the first entries below a folder, as far as they can be listed."""
    try:
        return any(path.name.endswith(suffix) for path in islice(walk_visible(folder), _MOST_ENTRIES))
    except OSError:
        return False
