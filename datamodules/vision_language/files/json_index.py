"""Indexes the records of a JSON file, for random access.

A parsed list of a million chats would take several gigabytes in every process and, over time, in every loader. The
index keeps three numbers per record (20 bytes). Building it reads the file once, at about 200 MB/s for the elements of
a list (each is parsed and dropped) and faster for lines. A record is parsed again when it is read, and compared with
its checksum: a file may grow, but its indexed records must stay as they are.
"""

import json
import re
import zlib
from array import array
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.data.errors import FileChangedError
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
    checksums: NDArray[np.uint32]  # [n] CRC-32 of each record
    checksum: int  # of the whole file
    numbers: NDArray[np.int64] | None = None  # [n] number of each record in the file, if blank lines were dropped


def index_lines(path: Path) -> ByteRanges:
    """Index the non-blank lines of a file. Their numbers count from 0 and include blank lines."""
    found, checksums = [np.zeros(1, np.int64)], array("I")
    offset, checksum, of_line = 0, 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            line_ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + 1
            begin, content = 0, memoryview(chunk)
            for end in line_ends.tolist():
                checksums.append(zlib.crc32(content[begin:end], of_line))
                begin, of_line = end, 0
            of_line = zlib.crc32(content[begin:], of_line)
            found.append(line_ends + offset)
            offset, checksum = offset + len(chunk), zlib.crc32(chunk, checksum)
        checksums.append(of_line)
        starts = np.concatenate(found)
        ends = np.append(starts[1:], offset)
        holds = np.ones(len(starts), np.bool_)
        for line in np.flatnonzero(ends - starts < _SHORT).tolist():
            file.seek(starts[line])
            holds[line] = bool(file.read(int(ends[line] - starts[line])).strip())
    numbers = None if holds.all() else np.flatnonzero(holds)
    return ByteRanges(starts[holds], ends[holds], np.array(checksums, np.uint32)[holds], checksum, numbers)


def index_elements(path: Path) -> ByteRanges:
    """Index the elements of the list in a JSON file.

    Raises:
        ValueError: the file is not such a list; the message gives the byte offset.
    """
    starts, ends, checksums = array("q"), array("q"), array("I")
    with path.open("rb") as file:
        text = _Text(file, path)
        if text.next() != "[":
            raise ValueError(f"{path}: expected a list of records, which begins with [; found {text.preview()}")
        text.at += 1
        closed = text.next() == "]"
        text.at += closed
        while not closed:
            starts.append(text.offset)
            checksums.append(text.skip_value(len(starts) - 1))
            ends.append(text.offset)
            after = text.next()
            if after not in (",", "]"):
                raise text.error(f"expected , or ] after record {len(starts) - 1}")
            text.at += 1
            text.next()
            closed = after == "]"
        if text.next():
            raise text.error("expected the end of the file after the list of records")
    return ByteRanges(
        np.array(starts, np.int64), np.array(ends, np.int64), np.array(checksums, np.uint32), text.checksum
    )


def read_record(path: Path, ranges: ByteRanges, index: int) -> Any:
    """Parse a record.

    Args:
        path: the file.
        ranges: its index.
        index: of the record in it.

    Raises:
        ValueError: the record is not JSON, or too long.
        FileChangedError: the record is not what it was when the file was indexed.
        OSError: the file cannot be read.
    """
    start, end = int(ranges.starts[index]), int(ranges.ends[index])
    if end - start > LONGEST:
        raise ValueError(f"found {end - start:,} bytes, expected at most {LONGEST:,}")
    # The file is opened for each record: a mapped file would count as memory of every process that reads it, and an
    # open file would share its offset with forked workers.
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        data = file.read(end - start)
    if zlib.crc32(data) != ranges.checksums[index]:
        raise FileChangedError(
            f"{path}: the file was changed during the run: the record at byte {start} is another; start the run again, "
            "and leave the file as it is (append to it, if it grows)"
        )
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

    def skip_value(self, number: int) -> int:
        """Advance to the end of the value that begins here, and return its CRC-32."""
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
        begin, self.at = self.at, end
        return zlib.crc32(self._text[begin:end].encode("latin-1"))

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
