"""Yields the records of a text file, with the line that each starts on and what is wrong with its quotes.

This is the plain reference of `line_scan`, for files that it refused. A field may be in double quotes as in RFC 4180:
a quote inside is doubled, and separators and line breaks are part of the field. A quote anywhere else is a fault, after
which reading continues on the line after the first line of the record.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from datamodules.recommender.reading.content_type import BOM
from datamodules.recommender.reading.errors import preview
from datamodules.recommender.reading.event_times import time_fault
from datamodules.recommender.reading.file_formats import Layout
from engine.timestamp import iso_seconds

LONGEST_RECORD = 1 << 24
"""Largest number of bytes of a record. A missing quote would otherwise join the rest of a file to a single field."""

_CR_INSIDE = "found a CR inside of the line; lines end with LF or CR LF, and a field with a CR needs quotes"

_ADVICE = 'write a field with a quote in quotes, and that quote twice ("TV, 32"" black")'

_CONTENT = re.compile(rb'[^"]*(?:""[^"]*)*')


class Record(NamedTuple):
    """Fields of a row, or what is wrong with its quotes."""

    number: int  # line that the record starts on, from 1
    fields: list[bytes]
    fault: str | None


def records(layout: Layout) -> Iterator[Record]:
    """Yield the records of a text file, the header included."""
    separator, number = layout.separator.encode(), 0
    with layout.path.open("rb") as file:
        lines = _Lines(iter(lambda: file.readline(LONGEST_RECORD), b""))
        for line in lines:
            number += 1
            if number == 1:
                line = line.removeprefix(BOM)
                if not line:
                    return
            if len(line) >= LONGEST_RECORD:
                yield Record(number, [], "the line is longer than 16 MiB; the file is not a table, or not whole")
            elif not layout.quoted or b'"' not in line:
                fields = body(line).split(separator)
                yield Record(number, fields, _CR_INSIDE if any(b"\r" in field for field in fields) else None)
            else:
                record = _read_quoted(line, lines, separator)
                fault, last = record.fault, number + len(record.lines) - 1
                if not fault and holds_rows(record.lines, layout):
                    fault = (
                        f"a field in quotes holds the line breaks and rows up to line {last}; remove the quotes, or "
                        "double those inside a quoted field"
                    )
                yield Record(number, record.fields, fault)
                if fault:  # the quotes have joined lines by mistake, so these are read again as rows of their own
                    lines.put_back(record.lines[1:])
                else:
                    number = last


def body(line: bytes) -> bytes:
    """Return a line without its line end."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def holds_rows(lines: Sequence[bytes], layout: Layout) -> bool:
    """Return whether every line of a record is a whole row by itself, so a pair of stray quotes has joined them.

    This needs a column of times: text between quotes that is not a number or date where the time would be, is a text.
    """
    if len(lines) < 2 or layout.time is None:
        return False
    column, separator = layout.columns.index(layout.time), layout.separator.encode()
    for line in lines:
        fields = body(line).split(separator)
        if len(fields) != len(layout.columns):
            return False
        time = fields[column].decode(errors="replace").strip('"')
        if iso_seconds(time) is None and time_fault(time):
            return False
    return True


class _Lines:
    """Lines of a file, which may be put back."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._ahead: deque[bytes] = deque()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return self._ahead.popleft() if self._ahead else next(self._source)

    def put_back(self, lines: list[bytes]) -> None:
        self._ahead.extendleft(reversed(lines))


class _QuotedRecord(NamedTuple):
    """A record with its lines, which are read again if its quotes are at fault."""

    fields: list[bytes]
    lines: list[bytes]
    fault: str | None


def _read_quoted(line: bytes, following: Iterator[bytes], separator: bytes) -> _QuotedRecord:
    """Read the record that starts with a line, and as many of the following lines as its quotes span."""
    fields: list[bytes] = []
    read, start = [line], 0
    while True:
        if read[-1].startswith(b'"', start):
            content, closed = _content(read, start + 1, following)
            if closed is None:
                fault = f"the quotes of the field {_show(content)} are not closed; {_ADVICE}"
                return _QuotedRecord(fields, read, fault)
            start, end = closed, len(body(read[-1]))
            fields.append(content)
            if start < end and not read[-1].startswith(separator, start):
                begins = f" that begins {len(read) - 1} lines before" if len(read) > 1 else ""
                text = _show(read[-1][start:end])
                fault = f"found {text} after the quotes of a field{begins}; {_ADVICE}"
                return _QuotedRecord(fields, read, fault)
        else:
            end = len(body(read[-1]))
            stop = read[-1].find(separator, start, end)
            value = read[-1][start : end if stop < 0 else stop]
            if b"\r" in value:
                return _QuotedRecord(fields, read, _CR_INSIDE)
            if b'"' in value:
                fault = f"a quote inside of the unquoted field {_show(value)}; {_ADVICE}"
                return _QuotedRecord(fields, read, fault)
            fields.append(value)
            start += len(value)
        if start >= end:
            return _QuotedRecord(fields, read, None)
        start += len(separator)


def _content(read: list[bytes], start: int, following: Iterator[bytes]) -> tuple[bytes, int | None]:
    """Return the content of a field in quotes, and the offset after its quotes in the last line; None if not closed.

    The lines that it continues on are added to those `read`.
    """
    content: list[bytes] = []
    size = 0
    while True:
        match = _CONTENT.match(read[-1], start)
        assert match, "the pattern matches an empty text"
        content.append(match.group())
        size += len(content[-1])
        if match.end() < len(read[-1]):
            return b"".join(content).replace(b'""', b'"'), match.end() + 1
        line = next(following, None) if size < LONGEST_RECORD else None
        if line is None:
            return b"".join(content), None
        read.append(line)
        start = 0


def _show(value: bytes) -> str:
    return preview(value.partition(b"\n")[0].decode(errors="replace"))
