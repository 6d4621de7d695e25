"""Checkpoints that are kept in a row: last.ckpt, last-1.ckpt, ... as logrotate keeps logs.

At every instant each name of the row is a whole checkpoint: what moves on is linked under its next name before its own
name is taken by the next one.
"""

import logging
import os
from pathlib import Path

from engine.durable_file import beside, flush_folder, remove

log = logging.getLogger("lockstep")


def insert(new: Path, row: list[Path], place: int = 0, shift: bool = True) -> None:
    """Puts the whole checkpoint `new` at `row[place]`; what is there moves on by one, what falls off the end is gone.

    Args:
        shift: False to replace what is at `row[place]`, and leave the others.

    Raises:
        OSError: the folder cannot be changed; the row is then as whole as it was.
    """
    if shift:
        # What comes after a gap need not move.
        end = next((index for index in range(place, len(row)) if not row[index].exists()), len(row) - 1)
        for index in range(end, place, -1):
            _name_also(row[index - 1], row[index])
    _replace(new, row[place])
    flush_folder(row[place].parent)


def to_front(row: list[Path], places: list[int]) -> None:
    """Moves what is at `places` of the row to its front, in that order, over what is there and not among them.

    Raises:
        OSError: the folder cannot be changed; those that have not moved yet are where they were.
    """
    left = list(places)  # where those that have not got their place yet are now
    for place in range(len(places)):
        source = left.pop(0)
        if source == place:
            continue
        if place in left:
            aside = beside(row[place], "aside")
            os.replace(row[place], aside)
            os.replace(row[source], row[place])
            os.replace(aside, row[source])
            left[left.index(place)] = source
        else:
            _replace(row[source], row[place])
    if places:
        flush_folder(row[0].parent)


def _name_also(old: Path, new: Path) -> None:
    if not old.is_dir():
        hidden = beside(new, "link")
        try:
            hidden.unlink(missing_ok=True)
            os.link(old, hidden)
        except OSError:  # a file system without hard links, or Windows' FAT
            os.replace(old, new)
        else:
            os.replace(hidden, new)
            hidden.unlink(missing_ok=True)  # POSIX leaves it where both names are of the same file already
    else:
        _replace(old, new)


def _replace(old: Path, new: Path) -> None:
    """os.replace, which cannot put a folder where there is one."""
    if new.is_dir() or (old.is_dir() and new.exists()):
        aside = beside(new, "old")
        remove(aside)
        os.replace(new, aside)
        os.replace(old, new)
        remove(aside)
    else:
        os.replace(old, new)
