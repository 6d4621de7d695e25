"""Reads the columns of interactions that are features of an event. Every row is read, or the file is refused.

An empty cell is a missing value, and white space around a value is no part of it. As in `interactions`, columns are
read fast, and a file with an invalid value is read again to locate it.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import EventColumns
from datamodules.recommender.features.event_feature_settings import EVENT_OPTION, EventFeatures
from datamodules.recommender.reading.column_choice import choose_named
from datamodules.recommender.reading.csv_records import records
from datamodules.recommender.reading.error_location import NUMBER, last_line_fault
from datamodules.recommender.reading.errors import InteractionError, preview
from datamodules.recommender.reading.file_formats import Layout
from datamodules.recommender.reading.interactions import read_text_column
from datamodules.recommender.reading.parquet_table import ParquetError, parquet_schema, read_column, require_one_schema

if TYPE_CHECKING:
    import polars as pl

_EXPECTED = f"a finite number, or nothing where it is missing; a column of text is for {EVENT_OPTION}.categories"


def choose_event_columns(layout: Layout, settings: EventFeatures) -> list[str]:
    """Return the columns of the features in the file, categories first.

    Raises:
        InteractionError: a column is missing, is the user, item or time, or has another type in another file.
    """
    columns = choose_named(layout.path, layout.columns, settings.columns, EVENT_OPTION)
    for column in columns:
        if column in (layout.user, layout.item, layout.time):
            raise InteractionError(
                f"{layout.path}: {EVENT_OPTION}: {preview(column)} is the user, item or time already"
            )
    if layout.parts:
        require_one_schema(layout.parts, columns)
    return columns


def read_event_columns(layout: Layout, settings: EventFeatures, rows: int) -> EventColumns:
    """Read the features of all rows, in file order.

    Args:
        layout: file, whose other columns have been read.
        settings: the columns.
        rows: number of rows that have been read of the other columns.

    Raises:
        InteractionError: a value is invalid. The message names file, line (or row), column, the value found and the
            expected value.
    """
    columns = choose_event_columns(layout, settings)
    # Only text files have a separator. A last line without an end may be cut off within its last column.
    if layout.separator and layout.columns[-1] in columns and (fault := last_line_fault(layout)):
        raise InteractionError(fault)
    split = len(settings.categories)
    codes = np.zeros((rows, split), np.int32)
    numbers = np.zeros((rows, len(columns) - split), np.float64)
    names: list[list[str]] = []
    for index, column in enumerate(columns[:split]):
        codes[:, index], categories = _code_texts(_cells(layout, column, rows, is_number=False))
        names.append(categories)
    for index, column in enumerate(columns[split:]):
        numbers[:, index] = _numbers(layout, column, _cells(layout, column, rows, is_number=True))
    return EventColumns(codes, numbers, names)


def _cells(layout: Layout, column: str, rows: int, is_number: bool) -> "pl.Series":
    """Return a column as text or, of numbers in Parquet, as floats; null where a cell is empty."""
    import polars as pl

    if layout.separator:
        return _strip(read_text_column(layout, column))
    parts = []
    for file in layout.files:
        kind = parquet_schema(file)[column]
        texts_like = kind.is_integer() or kind in (pl.Boolean, pl.String, pl.Categorical, pl.Enum)
        if not (kind.is_numeric() if is_number else texts_like):
            expected = (
                f"numbers; {EVENT_OPTION}.categories is for others" if is_number else "text, integers or booleans"
            )
            raise InteractionError(f"{file}: column {column!r}: found type {kind}, expected {expected}")
        target = pl.Float64 if is_number else pl.String
        try:
            # B023: the function runs before the loop continues, so it sees this file's target.
            parts.append(read_column(file, column, lambda batch: batch.cast(target)))  # noqa: B023
        except ParquetError as error:
            raise InteractionError(
                f"{file}: cannot be read as Parquet: {error}; the file is corrupt or cut off, fetch or write it again"
            ) from error
    cells = pl.concat(parts, rechunk=True)
    if len(cells) != rows:
        raise InteractionError(
            f"{layout.path}: column {column!r}: found {len(cells)} rows, expected {rows} as in the other columns; the "
            "file is corrupt or cut off, fetch or write it again"
        )
    return cells if is_number else _strip(cells)


def _strip(texts: "pl.Series") -> "pl.Series":
    """Return texts without white space around them, null where nothing is left."""
    stripped = texts.str.strip_chars()
    return stripped.set(stripped == "", None)


def _code_texts(texts: "pl.Series") -> tuple[NDArray[np.int32], list[str]]:
    """Return the index of each text among the sorted distinct texts, from 1 (0 where it is null), and these texts."""
    import polars as pl

    distinct = texts.drop_nulls().unique().sort()
    numbers = np.arange(1, len(distinct) + 1, dtype=np.int32)
    # replace_strict raises for values that are not listed, which are the nulls here, unless it has a default.
    codes = texts.replace_strict(distinct, numbers, default=0, return_dtype=pl.Int32)
    return codes.fill_null(0).to_numpy(), distinct.to_list()


def _numbers(layout: Layout, column: str, cells: "pl.Series") -> NDArray[np.float64]:
    """Return numbers, NaN where a cell is empty."""
    import polars as pl

    try:
        numbers = cells.cast(pl.Float64) if layout.separator else cells
    except pl.exceptions.PolarsError as error:
        raise InteractionError(_text_fault(layout, column) or f"{layout.path}: column {column!r}: {error}") from error
    present = numbers.drop_nulls()
    if not present.is_finite().all():
        fault = _text_fault(layout, column) if layout.separator else _row_fault(layout, column, numbers)
        raise InteractionError(
            fault or f"{layout.path}: column {column!r}: found no finite number, expected {_EXPECTED}"
        )
    return numbers.fill_null(np.nan).to_numpy()


def _text_fault(layout: Layout, column: str) -> str | None:
    """Return a message on the first cell that is neither empty nor a finite number."""
    index = layout.columns.index(column)
    for record in records(layout):
        if layout.header and record.number == 1:
            continue
        cell = record.fields[index].decode(errors="replace")
        if cell.strip() and not (NUMBER.fullmatch(cell) and math.isfinite(float(cell))):
            return (
                f"{layout.path}: line {record.number}: column {column!r}: found {preview(cell)}, expected {_EXPECTED}"
            )
    return None


def _row_fault(layout: Layout, column: str, numbers: "pl.Series") -> str:
    """Return a message on the first number of a Parquet table that is not finite."""
    # Counted over all files; the loop below subtracts the rows of the files before.
    row = int((~numbers.is_finite().fill_null(True)).arg_true()[0])
    for file in layout.files:
        if row < (rows := len(read_column(file, column, lambda batch: batch))):
            break
        row -= rows
    found = read_column(file, column, lambda batch: batch)[row]
    return f"{file}: row {row + 1}: column {column!r}: found {found}, expected {_EXPECTED}"
