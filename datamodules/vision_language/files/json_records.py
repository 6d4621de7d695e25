"""Where the records of a JSON file lie, so that each can be read alone.

Parsed whole, a list of a million chats would be several gigabytes of Python objects in every process and, after a
while, in every loader. Kept are two numbers a record (16 bytes); the file is read through once to find them, about two
hundred megabytes a second where the records are the elements of one list (each is parsed and dropped), and ten times
that where each has its line. A record is parsed again when it is asked for.
"""

import json
import re
import zlib
from array import array
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 64 * 2**20
"""Bytes of the longest record: a longer line is unusable, and a list without an end of a record in so many no list."""

_CHUNK = 4 * 2**20
_SPACE = re.compile(r"[ \t\n\r]*")
_AFTER = tuple(", \t\n\r]")
_SHORT = 16  # bytes; only shorter lines are asked whether they are blank, as no chat is; longer ones are read as chats


class Extents(NamedTuple):
    """Where n records lie in their file."""

    starts: NDArray[np.int64]  # [n] bytes from the file's beginning
    ends: NDArray[np.int64]  # [n]
    checksum: int  # of the whole file: it is read through anyway, and that takes far longer
    numbers: NDArray[np.int64] | None = None  # [n] each record's place in the file, where some places hold none


def lines_of(path: Path) -> Extents:
    """The lines of a file that are not blank; their numbers count from 0 and count blank lines, too."""
    found, offset, checksum = [np.zeros(1, np.int64)], 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + (offset + 1))
            offset, checksum = offset + len(chunk), zlib.crc32(chunk, checksum)
        starts = np.concatenate(found)
        ends = np.append(starts[1:], offset)
        holds = np.ones(len(starts), np.bool_)
        for line in np.flatnonzero(ends - starts < _SHORT).tolist():
            file.seek(starts[line])
            holds[line] = bool(file.read(int(ends[line] - starts[line])).strip())
    if holds.all():
        return Extents(starts, ends, checksum)
    return Extents(starts[holds], ends[holds], checksum, np.flatnonzero(holds))


def elements_of(path: Path) -> Extents:
    """The elements of the list that a JSON file holds.

    Raises:
        ValueError: the file holds no such list; says at which byte.
    """
    starts, ends = array("q"), array("q")
    with path.open("rb") as file:
        text = _Text(file, path)
        if text.next() != "[":
            raise ValueError(f"{path}: expected a list of records, which begins with [; found {text.shown()}")
        text.at += 1
        closed = text.next() == "]"
        while not closed:
            starts.append(text.place)
            text.pass_value(len(starts) - 1)
            ends.append(text.place)
            after = text.next()
            if after not in (",", "]"):
                raise text.error(f"expected , or ] after record {len(starts) - 1}")
            text.at += 1
            text.next()
            closed = after == "]"
        text.pass_rest()
    return Extents(np.array(starts, np.int64), np.array(ends, np.int64), text.checksum)


def record(path: Path, start: int, end: int) -> Any:
    """A record's value.

    Raises:
        ValueError: what lies there is not JSON, or too long.
        OSError: the file cannot be read, or is shorter than it was.
    """
    if end - start > LONGEST:
        raise ValueError(f"it has {end - start:,} bytes, expected at most {LONGEST:,}")
    # Opened for each record: a mapped file would count as memory of every process that reads it, and an open one
    # would be shared with loaders that are forked.
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        data = file.read(end - start)
    if len(data) < end - start:
        raise OSError(f"{path}: ends before byte {end}: it was longer when the training began")
    try:
        return json.loads(data.decode("utf-8-sig"))
    except RecursionError as error:
        raise ValueError(str(error)) from error


class _Text:
    """A file's text, a piece at a time. Read as Latin-1, in which a character is a byte and JSON's own are the same."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path, self._decoder = file, path, json.JSONDecoder()
        self._text, self.at, self._begin, self.checksum = "", 0, 0, 0
        self._more(max(_CHUNK, 3))
        if self._text.startswith("\xef\xbb\xbf"):  # the byte-order mark
            self.at = 3

    @property
    def place(self) -> int:
        """Bytes from the file's beginning."""
        return self._begin + self.at

    def next(self) -> str:
        """The next character that is not space, which is where the text then stands; nothing at the end."""
        self.at = _SPACE.match(self._text, self.at).end()
        while self.at == len(self._text) and self._more(_CHUNK):
            self.at = _SPACE.match(self._text, self.at).end()
        return self._text[self.at : self.at + 1]

    def pass_value(self, number: int) -> None:
        """Goes to the end of the value that begins here."""
        while True:
            try:
                _, end = self._decoder.raw_decode(self._text, self.at)
                wrong: Exception | None = None
            except (ValueError, RecursionError) as error:
                end, wrong = len(self._text), error
            # A number that ends where the piece does, or nearly, may go on: 1 and 1. may be 1.5.
            ended = wrong is None and self._text[end : end + 1] in _AFTER
            if ended or not self._more(max(_CHUNK, len(self._text) - self.at)):
                break
        if wrong is not None:
            raise self.error(f"record {number} is not JSON, or longer than {LONGEST} bytes ({wrong})") from wrong
        self.at = end

    def pass_rest(self) -> None:
        """Goes to the end of the file."""
        self.at = len(self._text)
        while self._more(_CHUNK):
            self.at = len(self._text)

    def error(self, what: str) -> ValueError:
        return ValueError(f"{self._path}: {what} at byte {self.place}; found {self.shown()}")

    def shown(self) -> str:
        return repr(self._text[self.at : self.at + 60]) if self.at < len(self._text) else "the end of the file"

    def _more(self, size: int) -> bool:
        """Reads on; what was passed is forgotten."""
        if len(self._text) - self.at > LONGEST:
            return False
        data = self._file.read(size)
        self.checksum = zlib.crc32(data, self.checksum)
        self._text, self._begin = self._text[self.at :] + data.decode("latin-1"), self._begin + self.at
        self.at = 0
        return bool(data)
