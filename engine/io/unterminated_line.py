"""Warns of a table or list in text whose last line has no end: the file may be cut off in the middle of a value."""

import io
import logging
from pathlib import Path

log = logging.getLogger("lockstep")

_warned: set[Path] = set()


def warn_if_unterminated(path: Path) -> None:
    """Warn if the last line of a file has no line end, once for each folder.

    A value that was cut off is often another valid value, such as 160 of 1604. Some programs write no last line end, so
    this is not an error.

    Args:
        path: a file that has been read as text.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        # An empty file has no line.
        if not file.seek(0, io.SEEK_END):
            return
        file.seek(-1, io.SEEK_END)
        if file.read(1) in b"\r\n":
            return
    folder = path.absolute().parent
    if folder not in _warned:
        _warned.add(folder)
        log.warning(
            "%s: the last line has no line end, so the file may be cut off and its last value too short; if it is "
            "whole, end the line (of the files in this folder, only the first is reported)", path,
        )  # fmt: skip
