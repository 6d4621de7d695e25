"""Detects that a file was changed after it was indexed."""

import os
import zlib
from pathlib import Path
from typing import NamedTuple

_CHUNK = 4 * 2**20  # bytes


class FileChangedError(OSError):
    """A file was modified while the run reads it."""


class Stamp(NamedTuple):
    """Properties of a file that change with its content."""

    inode: int
    size: int  # bytes
    modified: int  # nanoseconds since 1970

    @classmethod
    def of(cls, stat: os.stat_result) -> "Stamp":
        """Return the stamp of a file from its `stat`."""
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns)


class FileVersion:
    """The content of a file when it was indexed.

    A file with the same beginning is the same: it may be appended to, touched, or copied.

    Args:
        path: the file.
        stamp: its stamp before it was indexed.
        size: number of indexed bytes.
        checksum: CRC-32 of these bytes.
    """

    def __init__(self, path: Path, stamp: Stamp, size: int, checksum: int) -> None:
        self._path, self._stamp, self._size, self._checksum = path, stamp, size, checksum
        self._has_grown = False

    def check(self, after_failure: bool = False) -> None:
        """Check the stamp of the file and, if it is another, the indexed bytes.

        Args:
            after_failure: whether a record could not be parsed. Otherwise the bytes of a file that grows all the time
                are read at its first growth only.

        Raises:
            FileChangedError: the indexed bytes are others.
            OSError: the file cannot be read.
        """
        stamp = Stamp.of(self._path.stat())
        if stamp == self._stamp:
            return
        grew = stamp.inode == self._stamp.inode and stamp.size > self._stamp.size
        if grew and self._has_grown and not after_failure:
            return
        if stamp.size < self._size or self._current_checksum() != self._checksum:
            raise FileChangedError(
                f"{self._path}: the file was changed during the run, and its records are no longer where they were; "
                "start the run again, and leave the file as it is (append to it, if it grows)"
            )
        self._stamp, self._has_grown = stamp, self._has_grown or grew

    def _current_checksum(self) -> int:
        checksum, left = 0, self._size
        with self._path.open("rb") as file:
            while left and (chunk := file.read(min(_CHUNK, left))):
                checksum, left = zlib.crc32(chunk, checksum), left - len(chunk)
        return checksum
