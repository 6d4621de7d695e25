"""Interactions from a file, in file order, with ids as numbers: the fast path.

One column is read at a time and turned into int32 codes before the next one is, so the peak is the finished columns
(16 bytes a row) plus one column as text. When something is wrong, ``faults`` reads the file again, slowly, to say
where.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.faults import LATEST_TIME, find_fault, plain_column
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
        table = _Table(layout)
        users, user_ids = _codes(table.column(layout.user))
        items, item_ids = _codes(table.column(layout.item))
        times = _seconds(table.column(layout.time))
        table.check_fields(len(users))
    except (pl.exceptions.PolarsError, _Suspicious) as error:
        raise InteractionError(
            find_fault(layout) or f"{layout.path}: cannot be read as {layout.kind}: {error}"
        ) from error
    return Interactions(users, items, times, user_ids, item_ids)


class _Table:
    """The columns of a file, one at a time."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.source: Path | io.BytesIO = layout.path
        self.separators = 0
        if len(layout.separator) > 1:
            # Polars separates by one byte. Only ratings.dat has two; the largest (10M) is 265 MB.
            data = layout.path.read_bytes()
            self.separators = data.count(layout.separator.encode())
            self.source = io.BytesIO(data.replace(layout.separator.encode(), b"\t"))
        if layout.kind.startswith("MovieLens"):
            _check_last_line(layout)

    def column(self, name: str) -> "pl.Series":
        import polars as pl

        if not self.layout.separator:
            column = pl.scan_parquet(self.layout.path).select(name).collect()[name]
            values = plain_column(column, is_time=name == self.layout.time)
            if values is None:
                raise _Suspicious(f"column {name!r} has type {column.dtype}")
            return values
        id_type = pl.Int64 if self.layout.integer_ids else pl.String
        types = {name: pl.Float64 if name == self.layout.time else id_type}
        schema: dict[str, Any] = (
            {"schema_overrides": types, "infer_schema_length": 0}
            if self.layout.header
            else {"schema": {column: types.get(column, pl.String) for column in self.layout.columns}}
        )
        if isinstance(self.source, io.BytesIO):
            self.source.seek(0)
        lines = pl.scan_csv(
            self.source,
            separator="\t" if len(self.layout.separator) > 1 else self.layout.separator,
            has_header=self.layout.header,
            quote_char='"' if self.layout.quoted else None,
            **schema,
        )
        return lines.select(name).collect()[name]

    def check_fields(self, rows: int) -> None:
        """Too few fields leave a null; too many are seen here where Polars lets them pass."""
        if len(self.layout.separator) > 1 and self.separators != rows * (len(self.layout.columns) - 1):
            raise _Suspicious("a line has too many fields")


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


def _check_last_line(layout: Layout) -> None:
    """GroupLens ends every line; a number cut off in its middle would otherwise pass for a whole one."""
    with layout.path.open("rb") as file:
        file.seek(-1, io.SEEK_END)
        if file.read(1) != b"\n":
            raise _Suspicious("the last line has no end")
