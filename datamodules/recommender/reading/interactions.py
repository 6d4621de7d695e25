"""Reads interactions fast: rows in file order, with ids as integer codes.

Columns are read and encoded as int32 codes one at a time, so the peak memory is the encoded columns (16 bytes per row)
plus one column as text. `line_scan` counts the rows independently of the parser, so either all rows are read or an
error is raised. If the data are invalid, `error_location` reads the file again to locate the errors.
"""

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import EventColumns
from datamodules.recommender.reading.content_type import BOM
from datamodules.recommender.reading.error_location import locate_row_error, read_plain_column
from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.event_times import parse_iso
from datamodules.recommender.reading.file_formats import Layout
from datamodules.recommender.reading.line_scan import count_text_rows
from datamodules.recommender.reading.parquet_table import ParquetError, count_parquet_rows
from engine.io.error_line import first_line
from engine.timestamp import LATEST_TIME

if TYPE_CHECKING:
    import polars as pl


class Interactions(NamedTuple):
    """N rows in file order. Codes count from 0, by first appearance in the file."""

    users: NDArray[np.int32]  # [N] index into user_ids
    items: NDArray[np.int32]  # [N] index into item_ids
    times: NDArray[np.int64]  # [N] seconds; 0 in a file without times
    user_ids: list[str]
    item_ids: list[str]
    ratings: NDArray[np.float64] | None = None  # [N]; None if the layout has none
    features: EventColumns | None = None  # of each row; None if they are not read


class InvalidDataError(Exception):
    """The fast reader found invalid data; `error_location` then locates them."""


def read_interactions(layout: Layout) -> Interactions:
    """Read a file.

    Fractional times are rounded down to seconds; dates and datetimes without an offset are interpreted as UTC.

    Raises:
        InteractionError: the data are invalid. The message names file, line (or row), column, the value found and the
            expected value.
    """
    import polars as pl

    # Polars panics, instead of raising an error, on some corrupt files.
    invalid = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ParquetError, InvalidDataError)
    try:
        return _read(layout)
    except invalid as error:
        reason = first_line(error)[:300]
        try:
            message = locate_row_error(layout)
        except invalid:  # a corrupt Parquet file
            message = None
        advice = "" if layout.separator else "; the file is corrupt or cut off, fetch or write it again"
        raise InteractionError(
            message or f"{layout.path}: cannot be read as {layout.kind}: {reason}{advice}"
        ) from error


def _read(layout: Layout) -> Interactions:
    rows = _count_rows(layout)
    column = partial(_text_column if layout.separator else _parquet_column, layout)
    users, user_ids = _codes(column(layout.user))
    items, item_ids = _codes(column(layout.item))
    times = np.zeros(len(users), np.int64) if layout.time is None else _times(layout, layout.time)
    require_no_calendar_dates(times, layout)
    ratings = None if layout.rating is None else to_ratings(column(layout.rating))
    if not rows or {len(users), len(items), len(times), rows if ratings is None else len(ratings)} != {rows}:
        raise InvalidDataError(
            f"the file has {rows} rows, and {len(users)} users, {len(items)} items and {len(times)} times were read"
        )
    return Interactions(users, items, times, user_ids, item_ids, ratings)


def _count_rows(layout: Layout) -> int:
    """Return the number of rows, for a Parquet table from the footers of its files."""
    if not layout.separator:
        return count_parquet_rows(layout.files)
    last_is_read = layout.columns[-1] in (layout.user, layout.item, layout.rating)
    if (layout.integer_ids or last_is_read) and not _last_line_ends(layout):
        raise InvalidDataError("the last line has no end")
    rows = count_text_rows(layout)
    if rows is None:
        raise InvalidDataError("a line has too few or too many fields, or invalid quotes")
    return rows


def _text(layout: Layout, time_type: "type[pl.DataType] | None" = None) -> "pl.LazyFrame":
    import polars as pl

    id_type = pl.Int64 if layout.integer_ids else pl.String
    types: dict[str | None, type[pl.DataType]] = {layout.time: time_type or pl.Float64}
    types |= {layout.user: id_type, layout.item: id_type, layout.rating: pl.Float64}
    source: Path | io.BytesIO = layout.path
    if len(layout.separator) > 1:
        # Polars supports single-byte separators only. Of the formats, ratings.dat has two bytes; at most 265 MB (10M).
        source = io.BytesIO(layout.path.read_bytes().removeprefix(BOM).replace(layout.separator.encode(), b"\t"))
    return pl.scan_csv(
        source,
        separator=layout.separator if len(layout.separator) == 1 else "\t",
        has_header=False,
        skip_rows=int(layout.header),
        quote_char='"' if layout.quoted else None,
        schema={column: types.get(column, pl.String) for column in layout.columns},
    )


def _text_column(layout: Layout, name: str, time_type: "type[pl.DataType] | None" = None) -> "pl.Series":
    return _text(layout, time_type).select(name).collect().to_series()


def read_text_column(layout: Layout, name: str) -> "pl.Series":
    """Return a further column of a text file, as text; null where a field is empty.

    Raises:
        polars.exceptions.PolarsError: the file cannot be read.
    """
    return _text_column(layout._replace(time=None, rating=None), name)


def _parquet_column(layout: Layout, name: str) -> "pl.Series":
    column = read_plain_column(layout, name)
    if column is None:
        raise InvalidDataError(f"column {name!r} is of another type")
    return column


def _codes(ids: "pl.Series") -> tuple[NDArray[np.int32], list[str]]:
    import polars as pl

    # Ordered by first appearance, which the rules of `to_sequences` need.
    distinct = ids.unique(maintain_order=True)
    names = distinct.cast(pl.String)
    check_ids(names)
    codes = ids.replace_strict(distinct, np.arange(len(distinct), dtype=np.int32), return_dtype=pl.Int32)
    return codes.to_numpy(), names.to_list()


def check_ids(ids: "pl.Series") -> None:
    """Check that no id of a text column is empty or has a line break.

    Raises:
        InvalidDataError: it is not so.
    """
    if ids.null_count() or (ids.str.strip_chars() == "").any() or ids.str.contains(r"[\r\n]").any():
        raise InvalidDataError(f"column {ids.name!r} has an empty id, or a line break in an id")


def _times(layout: Layout, column: str) -> NDArray[np.int64]:
    import polars as pl

    if not layout.separator:
        return times_in_seconds(_parquet_column(layout, column))
    is_complete = _last_line_ends(layout) or layout.columns[-1] != column
    try:
        times = _text_column(layout, column)
    except pl.exceptions.PolarsError:
        # The times are not numbers, so the column is read again as dates. Dates of equal length are not cut off.
        texts = _text_column(layout, column, pl.String)
        times = parse_iso(texts)
        lengths = texts.str.len_bytes()
        is_complete = is_complete or lengths.min() == lengths.max()
    else:
        # With another digit it would be a time after 2200, so no digit is missing.
        is_complete = is_complete or bool((times.tail(1) * 10 > LATEST_TIME).all())
    if not is_complete:
        raise InvalidDataError("the last line has no end")
    return times_in_seconds(times)


def times_in_seconds(times: "pl.Series") -> NDArray[np.int64]:
    """Round float seconds down.

    Raises:
        InvalidDataError: a time is missing, not finite, or outside of 1970 to 2200.
    """
    if times.null_count() or not times.is_finite().all():
        raise InvalidDataError(f"column {times.name!r} has an empty or infinite time")
    if not times.is_between(0, LATEST_TIME).all():
        raise InvalidDataError(f"column {times.name!r} has a time outside of 1970 to 2200")
    return np.floor(times.to_numpy()).astype(np.int64)


def require_no_calendar_dates(times: NDArray[np.int64], layout: Layout) -> None:
    """Check that the times are not dates written as numbers, such as 20240131, which would be seconds of August 1970.

    Raises:
        InteractionError: all of them are such dates.
    """
    if not len(times) or times.min() < 1900_01_01 or times.max() > 2199_12_31:  # usual times need no more memory
        return
    months, days = times // 100 % 100, times % 100
    if ((months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)).all():
        first = f"{times[0]}"
        raise InteractionError(
            f"{layout.path}: column {layout.time!r}: found numbers such as {first}, which would be seconds since 1970; "
            f"write dates as {first[:4]}-{first[4:6]}-{first[6:]}"
        )


def to_ratings(ratings: "pl.Series") -> NDArray[np.float64]:
    """Return the ratings.

    Raises:
        InvalidDataError: a rating is missing or not finite.
    """
    if ratings.null_count() or not ratings.is_finite().all():
        raise InvalidDataError(f"column {ratings.name!r} has an empty or infinite rating")
    return ratings.to_numpy()


def _last_line_ends(layout: Layout) -> bool:
    """Return whether the last line is whole: it ends with a line end, or with the quote of its last field.

    In a GroupLens file only a line end will do. A truncated number would otherwise be accepted.
    """
    with layout.path.open("rb") as file:
        file.seek(-1, io.SEEK_END)
        return file.read(1) in ((b"\n",) if not layout.quoted else (b"\n", b'"'))
