"""Counts the rows of a text file without the parser, which silently accepts stray quotes and surplus fields.

The bytes that separate fields and lines, without those inside quotes, must be the same for every line. Blocks of whole
records are compared at once, so a good file costs little. `records` is the plain reference, and names the line.
"""

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.reading.content_type import BOM
from datamodules.recommender.reading.csv_records import LONGEST_RECORD, holds_rows
from datamodules.recommender.reading.file_formats import Layout

_BLOCK = 1 << 20
_QUOTE, _LF, _CR = b'"\n\r'

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]


def count_text_rows(layout: Layout, block_size: int = _BLOCK) -> int | None:
    """Return the number of rows of a text file without its header; None if a line or its quotes are invalid.

    Args:
        layout: format of the file.
        block_size: bytes read at once (affects memory, not the result).
    """
    rows, remainder, ended = -int(layout.header), b"", False
    with layout.path.open("rb") as file:
        start = file.read(len(BOM))
        remainder = start.removeprefix(BOM)
        while not ended:
            read = file.read(block_size)
            ended = not read
            # A last line may have no end.
            block = remainder + (read or (b"" if not remainder or remainder.endswith(b"\n") else b"\n"))
            counted = _count_records(block, layout)
            if counted is None:
                return None
            found, used = counted
            if not _is_utf8(block[:used]):
                return None
            rows, remainder = rows + found, block[used:]
            if len(remainder) > LONGEST_RECORD:
                return None
    return None if remainder else rows


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _count_records(block: bytes, layout: Layout) -> tuple[int, int] | None:
    """Return the number of records that end in a block, and their bytes; None if any record is invalid."""
    if b"\x00" in block:
        return None
    if layout.quoted and b'"' in block:
        return _count_quoted(block, layout)
    used = block.rfind(b"\n") + 1
    data = np.frombuffer(block, np.uint8, used)
    if len(layout.separator) > 1 and b"\t" in block:
        return None  # ratings.dat, whose separator has two bytes, is parsed with tabs in their place
    if b"\r" in block and not (data[np.flatnonzero(data == _CR) + 1] == _LF).all():
        return None
    # np.compress takes a third of the time of an index by a mask.
    found = _records(np.compress((data == ord(layout.separator[0])) | (data == _LF), data), layout)
    return None if found is None else (found, used)


def _count_quoted(block: bytes, layout: Layout) -> tuple[int, int] | None:
    data, separator = np.frombuffer(block, np.uint8), ord(layout.separator)
    positions = np.flatnonzero((data == separator) | (data == _LF) | (data == _QUOTE) | (data == _CR))
    kinds = data.take(positions)
    # Inside a quoted field after an odd number of quotes. The sum may overflow uint8: only its parity matters.
    inside = (np.cumsum(kinds == _QUOTE, dtype=np.uint8) & 1).astype(bool)
    ends = np.flatnonzero((kinds == _LF) & ~inside)
    if not len(ends):
        return 0, 0
    complete = slice(0, int(ends[-1]) + 1)
    positions, kinds, inside = positions[complete], kinds[complete], inside[complete]
    found = _records(np.compress(~inside & ((kinds == separator) | (kinds == _LF)), kinds), layout)
    if found is None or not _quotes_are_valid(data, positions, kinds, inside, separator):
        return None
    if layout.time is not None and _may_join_rows(block, positions, kinds, inside, layout):
        return None
    return found, int(positions[-1]) + 1


def _quotes_are_valid(data: Bytes, positions: Positions, kinds: Bytes, inside: Mask, separator: int) -> bool:
    """Return whether each quote opens or closes a field or is doubled inside it, and each CR outside ends a line.

    A doubled quote counts as closing and reopening the field, so the number of quotes is even.
    """
    quotes = np.compress(kinds == _QUOTE, positions)
    # The last byte is a line end, so a byte follows each quote and each CR.
    before, after = data.take(quotes[0::2] - 1, mode="clip"), data.take(quotes[1::2] + 1)
    opens = (quotes[0::2] == 0) | (before == separator) | (before == _LF) | (before == _QUOTE)
    ends = (after == separator) | (after == _LF) | (after == _QUOTE) | (after == _CR)
    returns = np.compress((kinds == _CR) & ~inside, positions)
    return bool(opens.all() and ends.all() and (data[returns + 1] == _LF).all())


def _records(marks: Bytes, layout: Layout) -> int | None:
    """Return the number of lines, given their separators and line ends; None if the numbers of fields differ."""
    # With everything else removed, a file whose lines all have this number of fields repeats the same bytes.
    line = layout.separator.encode() * (len(layout.columns) - 1) + b"\n"
    rows, extra = divmod(len(marks), len(line))
    return rows if not extra and marks.tobytes() == line * rows else None


def _may_join_rows(block: bytes, positions: Positions, kinds: Bytes, inside: Mask, layout: Layout) -> bool:
    """Return whether a record of several lines may be several rows, which a pair of stray quotes has joined."""
    lines = np.flatnonzero(kinds == _LF)
    continues = inside[lines]
    if not continues.any():
        return False
    separators = np.diff(np.cumsum(kinds == ord(layout.separator))[lines], prepend=0)
    plain = separators == len(layout.columns) - 1
    last = np.flatnonzero(~continues)  # lines that end a record
    first = np.concatenate([[0], last[:-1] + 1])
    # Records of several lines, each of which has the separators of a whole row.
    suspects = np.flatnonzero((last > first) & np.logical_and.reduceat(plain, first))
    starts = np.concatenate([[0], positions[lines[:-1]] + 1])
    ends = positions[lines] + 1
    return any(
        holds_rows([block[starts[n] : ends[n]] for n in range(first[record], last[record] + 1)], layout)
        for record in suspects
    )
