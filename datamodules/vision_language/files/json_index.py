"""Indexes the records of a JSON file, for random access.

A parsed list of a million chats would take several gigabytes in every process and, over time, in every loader. The
index keeps two numbers per record (16 bytes). Building it reads the file once, at about 200 MB/s for the elements of a
list (each is parsed and dropped) and ten times faster for lines. A record is parsed again when it is read.
"""

import json
import os
import re
import zlib
from array import array
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.files.file_version import FileVersion, Stamp
from engine.io.json_records import parse_json

LONGEST = 64 * 2**20
"""Maximum length of a record in bytes. A longer line is invalid, and so is a list with a longer element."""

_CHUNK = 4 * 2**20
_SPACE = re.compile(r"[ \t\n\r]*")
_AFTER_VALUE = tuple(", \t\n\r]")
_SHORT = 16  # bytes; only shorter lines are tested for being blank, since no chat is that short


class ByteRanges(NamedTuple):
    """Positions of n records in their file."""

    starts: NDArray[np.int64]  # [n] offsets in bytes
    ends: NDArray[np.int64]  # [n] offsets in bytes, exclusive
    checksum: int  # CRC-32 of the whole file, a by-product of reading it
    version: FileVersion
    numbers: NDArray[np.int64] | None = None  # [n] number of each record in the file, if blank lines were dropped


def index_lines(path: Path) -> ByteRanges:
    """Index the non-blank lines of a file. Their numbers count from 0 and include blank lines."""
    found, offset, checksum = [np.zeros(1, np.int64)], 0, 0
    with path.open("rb") as file:
        stamp = Stamp.of(os.fstat(file.fileno()))
        while chunk := file.read(_CHUNK):
            found.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + (offset + 1))
            offset, checksum = offset + len(chunk), zlib.crc32(chunk, checksum)
        starts = np.concatenate(found)
        ends = np.append(starts[1:], offset)
        holds = np.ones(len(starts), np.bool_)
        for line in np.flatnonzero(ends - starts < _SHORT).tolist():
            file.seek(starts[line])
            holds[line] = bool(file.read(int(ends[line] - starts[line])).strip())
    version = FileVersion(path, stamp, offset, checksum)
    if holds.all():
        return ByteRanges(starts, ends, checksum, version)
    return ByteRanges(starts[holds], ends[holds], checksum, version, np.flatnonzero(holds))


def index_elements(path: Path) -> ByteRanges:
    """Index the elements of the list in a JSON file.

    Raises:
        ValueError: the file is not such a list; the message gives the byte offset.
    """
    starts, ends = array("q"), array("q")
    with path.open("rb") as file:
        stamp = Stamp.of(os.fstat(file.fileno()))
        text = _Text(file, path)
        if text.next() != "[":
            raise ValueError(f"{path}: expected a list of records, which begins with [; found {text.preview()}")
        text.at += 1
        closed = text.next() == "]"
        text.at += closed
        while not closed:
            starts.append(text.offset)
            text.skip_value(len(starts) - 1)
            ends.append(text.offset)
            after = text.next()
            if after not in (",", "]"):
                raise text.error(f"expected , or ] after record {len(starts) - 1}")
            text.at += 1
            text.next()
            closed = after == "]"
        if text.next():
            raise text.error("expected the end of the file after the list of records")
    version = FileVersion(path, stamp, text.offset, text.checksum)  # the offset is at the end of the file
    return ByteRanges(np.array(starts, np.int64), np.array(ends, np.int64), text.checksum, version)


def read_record(path: Path, start: int, end: int) -> Any:
    """Parse a record.

    Raises:
        ValueError: the record is not JSON, or too long.
        OSError: the file cannot be read, or has become shorter.
    """
    if end - start > LONGEST:
        raise ValueError(f"found {end - start:,} bytes, expected at most {LONGEST:,}")
    # The file is opened for each record: a mapped file would count as memory of every process that reads it, and an
    # open file would share its offset with forked workers.
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        data = file.read(end - start)
    if len(data) < end - start:
        raise OSError(f"{path}: ends before byte {end}; the file was longer when the training began")
    return parse_json(data)


class _Text:
    """Text of a file, read in chunks.

    It is decoded as Latin-1, in which a character is a byte and the structural characters of JSON are the same.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path, self._decoder = file, path, json.JSONDecoder()
        self._text, self.at, self._begin, self.checksum = "", 0, 0, 0
        self._read_more(max(_CHUNK, 3))
        if self._text.startswith("\xef\xbb\xbf"):  # byte-order mark
            self.at = 3

    @property
    def offset(self) -> int:
        """Offset in the file, in bytes."""
        return self._begin + self.at

    def next(self) -> str:
        """Skip white space and return the next character; the empty string at the end of the file."""
        self._skip_space()
        while self.at == len(self._text) and self._read_more(_CHUNK):
            self._skip_space()
        return self._text[self.at : self.at + 1]

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text, self.at)
        assert space is not None  # the pattern matches the empty string
        self.at = space.end()

    def skip_value(self, number: int) -> None:
        """Advance to the end of the value that begins here."""
        while True:
            try:
                _, end = self._decoder.raw_decode(self._text, self.at)
                failure: Exception | None = None
            except (ValueError, RecursionError) as error:
                end, failure = len(self._text), error
            # A number at the end of a chunk may continue in the next chunk: 1 and 1. may be 1.5.
            ended = failure is None and self._text[end : end + 1] in _AFTER_VALUE
            if ended or not self._read_more(max(_CHUNK, len(self._text) - self.at)):
                break
        if failure is not None:
            raise self.error(f"record {number} is not JSON, or longer than {LONGEST} bytes ({failure})") from failure
        self.at = end

    def error(self, problem: str) -> ValueError:
        return ValueError(f"{self._path}: {problem} at byte {self.offset}; found {self.preview()}")

    def preview(self) -> str:
        return repr(self._text[self.at : self.at + 60]) if self.at < len(self._text) else "the end of the file"

    def _read_more(self, size: int) -> bool:
        """Read another chunk and drop the text before the current position."""
        if len(self._text) - self.at > LONGEST:
            return False
        data = self._file.read(size)
        self.checksum = zlib.crc32(data, self.checksum)
        self._text, self._begin = self._text[self.at :] + data.decode("latin-1"), self._begin + self.at
        self.at = 0
        return bool(data)
