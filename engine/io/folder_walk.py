"""Lists the files below a folder, and raises an error for a folder that cannot be read."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path


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
