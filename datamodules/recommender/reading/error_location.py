"""Locates the errors in a file of interactions.

This slow path runs after the fast reader has failed. It reads record by record in plain Python, so the message names
file, line, column, the value found and the expected value.
"""

import math
import re
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.recommender.reading.csv_records import Record, records
from datamodules.recommender.reading.errors import preview
from datamodules.recommender.reading.event_times import time_fault
from datamodules.recommender.reading.file_formats import Layout
from datamodules.recommender.reading.parquet_table import ParquetError, count_parquet_rows, read_column, read_schema
from engine.timestamp import is_iso

if TYPE_CHECKING:
    import polars as pl

MAX_NAMED = 10
"""Further lines that a message names."""

_SEARCHED = 100_000
"""Lines after the first invalid line in which others are searched: a second of reading in plain Python."""

_LONGEST_HEADER = 300
"""Characters of a file's header that a message quotes."""

NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
# Every integer of 18 digits fits an int64.
_INTEGER = re.compile(r"\s*[+-]?\d{1,18}", re.ASCII)


def locate_row_error(layout: Layout) -> str | None:
    """Return a message on the first error that also names further wrong lines; None if this reader finds no error."""
    if not layout.separator:
        return _parquet_fault(layout)
    count, faults = 0, RowErrors(layout)
    located: list[tuple[int, str]] = []
    for record in records(layout):
        if layout.header and record.number == 1:
            continue
        count += 1
        if fault := faults.find(record):
            located.append((record.number, fault))
        if len(located) > MAX_NAMED or (located and record.number >= located[0][0] + _SEARCHED):
            more = " and perhaps more"
            break
    else:
        more = ""
    if located:
        (number, fault), others = located[0], [str(line) for line, _ in located[1:]]
        also = f"\nOther invalid lines: {', '.join(others)}{more}" if others else ""
        return f"{layout.path}: line {number}: {fault}{also}"
    if not count:
        return f"{layout.path}: no interactions after the header"
    return last_line_fault(layout)


class RowErrors:
    """What is wrong with a record. The first row decides whether times are numbers or dates."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._iso: bool | None = None

    def find(self, record: Record) -> str | None:
        """Return what is wrong with a record; None if it is valid."""
        if record.fault:
            return record.fault
        if any(b"\x00" in field for field in record.fields):
            return "found a NUL byte, expected text; the file is corrupt, or not text in UTF-8"
        try:
            fields = [field.decode() for field in record.fields]
        except UnicodeDecodeError:
            return "the text is not UTF-8; convert the file to UTF-8"
        layout = self._layout
        if not any(fields):
            return "the line is empty; remove it"
        if len(fields) != len(layout.columns):
            return self._wrong_number(fields)
        if layout.separator == "::" and any("\t" in field for field in fields):
            return f"found a tab, expected fields between '::' alone ({'::'.join(layout.columns)})"
        values = dict(zip(layout.columns, fields, strict=True))
        for column in (layout.user, layout.item):
            if fault := _id_fault(values[column], layout.integer_ids):
                return f"column {column!r}: {fault}"
        for name in (layout.time, layout.rating):
            if name is not None and (fault := self._number_fault(name, values[name])):
                return f"column {name!r}: {fault}"
        return None

    def _number_fault(self, column: str, value: str) -> str | None:
        if column == self._layout.rating:
            return _rating_fault(value)
        if self._iso is None:
            self._iso = is_iso(value)
        return time_fault(value, self._iso)

    def _wrong_number(self, fields: list[str]) -> str:
        columns, separator = self._layout.columns, self._layout.separator
        names = (separator if separator != "\t" else " ").join(columns)
        if len(names) > _LONGEST_HEADER:
            names = f"{names[:_LONGEST_HEADER]}..."
        hint = ""
        if len(fields) < len(columns):
            hint = "; the line seems to be cut off"
        elif self._layout.quoted:
            hint = f"; a field with {separator!r} inside needs quotes"
        return f"found {len(fields)} fields, expected {len(columns)} ({names}){hint}"


def _id_fault(value: str, integer: bool) -> str | None:
    if not value.strip():
        return "the id is empty, expected " + ("an integer" if integer else "an id")
    if integer and not _INTEGER.fullmatch(value):
        return f"found {preview(value)}, expected an integer id"
    if "\n" in value or "\r" in value:
        return (
            f"found a line break in the id {preview(value)}; remove the quotes that join the lines, or the line break"
        )
    return None


def _rating_fault(value: str) -> str | None:
    if NUMBER.fullmatch(value) and math.isfinite(float(value)):
        return None
    return f"found {preview(value)}, expected a rating (a number), which min_rating reads"


def _text_id_fault(value: str) -> str | None:
    return _id_fault(value, integer=False)


def last_line_fault(layout: Layout) -> str | None:
    """Return a message on a last line without a line end, which may be cut off; None if the line end is there."""
    with layout.path.open("rb") as file:
        # A deque of length 1 holds only the last line in memory.
        number, data = deque(enumerate(file, start=1), maxlen=1)[0]
    if data.endswith(b"\n"):
        return None
    ends = f"{layout.kind} ends every line" if layout.integer_ids else "its last field may be shorter than it was"
    found = preview(data.decode(errors="replace"), 200)
    return (
        f"{layout.path}: line {number}: found {found} without a line end; {ends}, so the file may be cut off. Fetch it "
        "again, or end the line if it is whole"
    )


def _parquet_fault(layout: Layout) -> str | None:
    for file in layout.files:
        schema, file_layout = read_schema(file), layout._replace(path=file, parts=())
        for column in layout.read_columns:
            values = read_plain_column(file_layout, column)
            if fault := locate_value(values, column, file, layout, kind=schema[column]):
                return fault
    return None if count_parquet_rows(layout.files) else f"{layout.path}: no interactions, the table has no row"


def locate_value(
    values: "pl.Series | None", column: str, file: Path, layout: Layout, *, kind: "pl.DataType", before: int = 0
) -> str | None:
    """Return a message on the first invalid value in a column of a Parquet file; None if all are valid.

    Args:
        values: values of rows that follow each other, as of `plain_values`; None for a column of another type.
        column: name of the column.
        file: the file, for the message.
        layout: columns of the file.
        kind: type of the column.
        before: number of rows of the file before these.
    """
    if values is None:
        expected = {layout.time: "numbers (seconds since 1970) or a datetime", layout.rating: "numbers"}
        return f"{file}: column {column!r}: found type {kind}, expected {expected.get(column, 'integers or text')}"
    fault_of = {layout.time: time_fault, layout.rating: _rating_fault}.get(column, _text_id_fault)
    for row, value in enumerate(values, start=before + 1):
        # Integer times and ratings are read as floats; the message has them as they are in the file.
        is_cast = isinstance(value, float) and kind.is_integer()
        if fault := fault_of("" if value is None else str(int(value) if is_cast else value)):
            return f"{file}: row {row}: column {column!r}: {fault}"
    return None


def read_plain_column(layout: Layout, column: str) -> "pl.Series | None":
    """Read a column of a Parquet table as ids, times or ratings; None if its type is another.

    Raises:
        ParquetError: see `parquet_table.read_column`.
    """
    import polars as pl

    values = plain_values(column, read_schema(layout.files[0])[column], layout)
    if values is None:
        return None
    parts = []
    for file in layout.files:
        try:
            parts.append(read_column(file, column, lambda batch: batch.to_frame().select(values).to_series()))
        except ParquetError as error:
            raise ParquetError(f"{file.name}: {error}" if layout.parts else str(error)) from error
    return pl.concat(parts, rechunk=True) if len(parts) > 1 else parts[0]


def plain_values(column: str, kind: "pl.DataType", layout: Layout) -> "pl.Expr | None":
    """Return a Parquet column as ids (integers or text), float seconds or ratings; None if its type is another."""
    import polars as pl

    values, is_time = pl.col(column), column == layout.time
    if column == layout.rating:
        return values.cast(pl.Float64) if kind.is_numeric() else None
    if is_time and kind in (pl.Date, pl.Datetime):
        return values.cast(pl.Datetime("us")).dt.timestamp("us") / 1e6
    if is_time and kind.is_numeric():
        return values.cast(pl.Float64)
    if not is_time and kind.is_integer():
        return values
    if not is_time and kind in (pl.String, pl.Categorical, pl.Enum):
        return values.cast(pl.String)
    return None
