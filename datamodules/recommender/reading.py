"""Interactions from a file, in file order, with ids as numbers: the fast path.

One column is read at a time and turned into int32 codes before the next one is, so the peak is the finished columns
(16 bytes a row) plus one column as text. When something is wrong, ``faults`` reads the file again, slowly, to say
where.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.faults import LATEST_TIME, find_fault, plain_values
from datamodules.recommender.formats import InteractionError, Layout

if TYPE_CHECKING:
    import polars as pl


class Interactions(NamedTuple):
    """N rows in file order. Codes count from 0, by first appearance in the file."""

    users: NDArray[np.int32]  # [N] index into user_ids
    items: NDArray[np.int32]  # [N] index into item_ids
    times: NDArray[np.int64]  # [N] seconds
    user_ids: list[str]
    item_ids: list[str]


class _Suspicious(Exception):
    """The fast path met something that must not be there; never leaves this file."""


def read_interactions(layout: Layout) -> Interactions:
    """Read a file.

    Times may be fractional and are floored to seconds; Parquet dates and datetimes are taken as UTC.

    Raises:
        InteractionError: names file, line (or row), column, what was found and what was expected.
    """
    import polars as pl

    try:
        _check_last_line(layout)
        table = _parquet(layout) if not layout.separator else _text(layout)
        users, user_ids = _codes(table.select(layout.user).collect().to_series())
        items, item_ids = _codes(table.select(layout.item).collect().to_series())
        times = _seconds(table.select(layout.time).collect().to_series())
        _check_fields(layout, len(users))
    except (pl.exceptions.PolarsError, _Suspicious) as error:
        message = find_fault(layout) or f"{layout.path}: cannot be read as {layout.kind}: {error}"
        raise InteractionError(message) from error
    return Interactions(users, items, times, user_ids, item_ids)


def _text(layout: Layout) -> "pl.LazyFrame":
    import polars as pl

    id_type = pl.Int64 if layout.integer_ids else pl.String
    types = {layout.user: id_type, layout.item: id_type, layout.time: pl.Float64}
    source: Path | io.BytesIO = layout.path
    if len(layout.separator) > 1:
        # Polars separates by one byte. Of the formats only ratings.dat has two; the largest (10M) is 265 MB.
        source = io.BytesIO(layout.path.read_bytes().replace(layout.separator.encode(), b"\t"))
    return pl.scan_csv(
        source,
        separator=layout.separator if len(layout.separator) == 1 else "\t",
        has_header=False,
        skip_rows=int(layout.header),
        quote_char='"' if layout.quoted else None,
        schema={column: types.get(column, pl.String) for column in layout.columns},
    )


def _parquet(layout: Layout) -> "pl.LazyFrame":
    import polars as pl

    table = pl.scan_parquet(layout.path)
    for name in (layout.user, layout.item, layout.time):
        values = plain_values(name, table.collect_schema()[name], is_time=name == layout.time)
        if values is None:
            raise _Suspicious(f"column {name!r} is of another type")
        table = table.with_columns(values)
    return table


def _codes(ids: "pl.Series") -> tuple[NDArray[np.int32], list[str]]:
    import polars as pl

    distinct = ids.unique(maintain_order=True)
    names = distinct.cast(pl.String)
    if names.null_count() or (names.str.strip_chars() == "").any():
        raise _Suspicious(f"column {ids.name!r} has an empty id")
    codes = ids.replace_strict(distinct, np.arange(len(distinct), dtype=np.int32), return_dtype=pl.Int32)
    return codes.to_numpy(), names.to_list()


def _seconds(times: "pl.Series") -> NDArray[np.int64]:
    if times.null_count() or not times.is_finite().all():
        raise _Suspicious(f"column {times.name!r} has an empty or infinite time")
    if len(times) and not 0 <= times.min() <= times.max() <= LATEST_TIME:
        raise _Suspicious(f"column {times.name!r} has a time outside of 1970 to 2200")
    return np.floor(times.to_numpy()).astype(np.int64)


def _check_fields(layout: Layout, rows: int) -> None:
    """Polars lets lines with too many fields pass where it reads some columns only; the separators give them away."""
    if rows == 0:
        raise _Suspicious("there is no row")
    separators = 0
    if layout.separator:
        with layout.path.open("rb") as file:
            while block := file.read(1 << 24):
                if layout.quoted and b'"' in block:
                    return  # quoted fields may hold separators of their own
                separators += block.count(layout.separator[-1].encode())
        lines = rows + layout.header
        if separators != lines * (len(layout.columns) - 1) * len(layout.separator):
            raise _Suspicious("a line has too few or too many fields")


def _check_last_line(layout: Layout) -> None:
    """GroupLens ends every line; a number cut off in its middle would otherwise pass for a whole one."""
    if layout.integer_ids:
        with layout.path.open("rb") as file:
            file.seek(-1, io.SEEK_END)
            if file.read(1) != b"\n":
                raise _Suspicious("the last line has no end")
