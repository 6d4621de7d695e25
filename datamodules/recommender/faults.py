"""Where a file of interactions goes wrong: the slow path, taken only after the fast one has failed.

It reads line by line in plain Python and stops at the first fault, so a message can name file, line, column, what was
found and what was expected.
"""

import csv
import math
import re
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from datamodules.recommender.formats import Layout

if TYPE_CHECKING:
    import polars as pl

LATEST_TIME = 7_258_118_400
"""2200-01-01 in seconds. A later time is taken for milliseconds or finer, and refused: to rescale would be to guess."""

_INTEGER = re.compile(r"[+-]?\d{1,18}")


def find_fault(layout: Layout) -> str | None:
    """The first fault in reading order, as a message; None where this reader finds none."""
    if not layout.separator:
        return _parquet_fault(layout)
    number = 0
    with layout.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        lines = _quoted(file, layout.separator) if layout.quoted else _unquoted(file, layout.separator)
        for number, fields in lines:
            if layout.header and number == 1:
                continue
            fault = _line_fault(layout, fields)
            if fault:
                return f"{layout.path}: line {number}: {fault}"
    if number <= layout.header:
        return f"{layout.path}: no interactions after the header"
    return _last_line_fault(layout)


def _line_fault(layout: Layout, fields: list[str]) -> str | None:
    if any("\udc80" <= character <= "\udcff" for field in fields for character in field):
        return "the text is not UTF-8; convert the file to UTF-8"
    if not any(fields):
        return "the line is empty; remove it"
    if len(fields) != len(layout.columns):
        names = (layout.separator if layout.separator != "\t" else " ").join(layout.columns)
        cut = "; the line seems to be cut off" if len(fields) < len(layout.columns) else ""
        return f"found {len(fields)} fields, expected {len(layout.columns)} ({names}){cut}"
    values = dict(zip(layout.columns, fields, strict=True))
    for column in (layout.user, layout.item):
        fault = _id_fault(values[column], layout.integer_ids)
        if fault:
            return f"column {column!r}: {fault}"
    fault = _time_fault(values[layout.time])
    return f"column {layout.time!r}: {fault}" if fault else None


def _id_fault(value: str, integer: bool) -> str | None:
    if not value.strip():
        return "the id is empty, expected " + ("an integer" if integer else "an id")
    if integer and not _INTEGER.fullmatch(value):
        return f"found {value!r}, expected an integer id"
    return None


def _time_fault(value: str) -> str | None:
    try:
        time = float(value)
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        return f"found {value!r}, expected a time in seconds since 1970"
    if time < 0:
        return f"found {value!r}, a negative time; expected seconds since 1970"
    if time > LATEST_TIME:
        return f"found {value!r}, a time after the year 2200; expected seconds (divide milliseconds by 1000)"
    return None


def _last_line_fault(layout: Layout) -> str | None:
    with layout.path.open("rb") as file:
        number, data = deque(enumerate(file, start=1), maxlen=1)[0]
    if data.endswith(b"\n"):
        return None
    return (
        f"{layout.path}: line {number}: found {data.decode(errors='replace')!r} without a line end; {layout.kind} ends "
        f"every line, so the file may be cut off. Fetch it again, or end the line if it is whole"
    )


def _unquoted(file: Iterator[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(file, start=1):
        yield number, line.rstrip("\r\n").split(separator)


def _quoted(file: Iterator[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(1 << 30)  # a review's text may stand beside the ids
    reader = csv.reader(file, delimiter=separator)
    for fields in reader:
        yield reader.line_num, fields


def _parquet_fault(layout: Layout) -> str | None:
    import polars as pl

    table = pl.scan_parquet(layout.path)
    for column in (layout.user, layout.item, layout.time):
        is_time, kind = column == layout.time, table.collect_schema()[column]
        values = plain_values(column, kind, is_time)
        if values is None:
            expected = "numbers (seconds since 1970) or a datetime" if is_time else "integers or text"
            return f"{layout.path}: column {column!r}: found type {kind}, expected {expected}"
        for row, value in enumerate(table.select(values).collect().to_series(), start=1):
            text = "" if value is None else str(value)
            fault = _time_fault(text) if is_time else _id_fault(text, integer=False)
            if fault:
                return f"{layout.path}: row {row}: column {column!r}: {fault}"
    return None if table.select(pl.len()).collect().item() else f"{layout.path}: no interactions, the table has no row"


def plain_values(column: str, kind: "pl.DataType", is_time: bool) -> "pl.Expr | None":
    """A Parquet column as ids (integers or text) or as float seconds; None where its type is neither."""
    import polars as pl

    values = pl.col(column)
    if is_time and kind in (pl.Date, pl.Datetime):
        return values.cast(pl.Datetime("us")).dt.timestamp("us") / 1e6
    if is_time and kind.is_numeric():
        return values.cast(pl.Float64)
    if not is_time and kind.is_integer():
        return values
    if not is_time and kind in (pl.String, pl.Categorical, pl.Enum):
        return values.cast(pl.String)
    return None
