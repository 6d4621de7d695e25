"""Rotates checkpoints: last.ckpt, last-1.ckpt, ... as logrotate keeps logs.

At every instant each name of a rotation refers to an intact checkpoint: a file is linked under its next name before its
old name is replaced.
"""

import logging
import os
import shutil
from pathlib import Path

from engine.io.atomic_file import flush_folder, remove, temp_path

log = logging.getLogger("lockstep")


def rotate_in(new: Path, files: list[Path], index: int = 0, shift: bool = True) -> None:
    """Insert the checkpoint `new` at `files[index]`. Older checkpoints move to the next name; the last is deleted.

    Args:
        new: complete checkpoint (file or folder) in the same folder under a temporary name.
        files: names of the rotation, newest first.
        index: position of `new`.
        shift: False to replace `files[index]` and to leave all other files alone.

    Raises:
        OSError: the folder cannot be changed. Each name still refers to an intact checkpoint.
    """
    if shift:
        # Files behind the first unused name need not move.
        end = next((i for i in range(index, len(files)) if not files[i].exists()), len(files) - 1)
        # The links run from the oldest name to the newest, so that each replaces a file that has its next name already.
        for i in range(end, index, -1):
            _link(files[i - 1], files[i])
    _replace(new, files[index])
    flush_folder(files[index].parent)


def keep_copy(checkpoint: Path, copy: Path) -> None:
    """Give a checkpoint a second name that no rotation moves or deletes.

    The names share their bytes where the file system has hard links; elsewhere the bytes are copied.

    Args:
        checkpoint: complete checkpoint (file or folder).
        copy: second name, in the same folder. A checkpoint of that name is replaced.

    Raises:
        OSError: the folder cannot be changed. `checkpoint` is unchanged.
    """
    hidden = temp_path(copy, "kept")
    remove(hidden)
    if checkpoint.is_dir():
        shutil.copytree(checkpoint, hidden, copy_function=_link_or_copy)
        flush_folder(hidden)
    else:
        _link_or_copy(checkpoint, hidden)
    _replace(hidden, copy)
    remove(hidden)  # POSIX rename does nothing if both names refer to the same file
    flush_folder(copy.parent)


def reorder(files: list[Path], sources: list[int]) -> None:
    """Move the files at positions `sources` to the front, in this order. Other files are overwritten.

    Args:
        files: names of the rotation.
        sources: positions of the files to keep, without duplicates.

    Raises:
        OSError: the folder cannot be changed. Files that have not been moved yet keep their names.
    """
    pending = list(sources)  # current positions of the files that are not moved yet
    # Invariant: the files before `target` are in place, and `pending` has the positions of those that follow.
    for target in range(len(sources)):
        source = pending.pop(0)
        if source == target:
            continue
        if target in pending:
            # Swap: the file at the target is needed later.
            aside = temp_path(files[target], "aside")
            os.replace(files[target], aside)
            os.replace(files[source], files[target])
            os.replace(aside, files[source])
            pending[pending.index(target)] = source
        else:
            _replace(files[source], files[target])
    if sources:
        flush_folder(files[0].parent)


def _link(old: Path, new: Path) -> None:
    """Give a checkpoint a second name. A folder cannot have two names, so it is renamed."""
    if old.is_dir():
        _replace(old, new)
        return
    hidden = temp_path(new, "link")
    try:
        hidden.unlink(missing_ok=True)
        os.link(old, hidden)
    except OSError:  # the file system has no hard links
        _replace(old, new)
    else:
        _replace(hidden, new)
        hidden.unlink(missing_ok=True)  # POSIX rename does nothing if both names refer to the same file


def _link_or_copy(old: str | Path, new: str | Path) -> None:
    try:
        os.link(old, new)
    except OSError:  # the file system has no hard links
        shutil.copyfile(old, new)
        with open(new, "rb+") as file:
            os.fsync(file.fileno())


def _replace(old: Path, new: Path) -> None:
    """Rename `old` to `new`, also where `new` is a folder, which os.replace refuses."""
    if new.is_dir() or (old.is_dir() and new.exists()):
        # For an instant no folder has the name; that is why a rotation of folders keeps at least two.
        aside = temp_path(new, "old")
        remove(aside)
        os.replace(new, aside)
        os.replace(old, new)
        remove(aside)
    else:
        os.replace(old, new)
