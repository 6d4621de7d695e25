"""Reads a table of items in a Parquet file, which may hold vectors."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.features.item_table import ITEM_OPTION, ItemTable, categories_of, duplicate_item_error
from datamodules.recommender.reading.column_choice import choose_item, choose_named
from datamodules.recommender.reading.errors import InteractionError, preview
from datamodules.recommender.reading.parquet_table import ParquetError, parquet_schema, read_column

if TYPE_CHECKING:
    import polars as pl


def read_parquet(path: Path, settings: ItemFeatures) -> ItemTable:
    """Read the columns of a Parquet file that the settings name; see `read_item_table`."""
    import polars as pl

    schema = parquet_schema(path)
    item = choose_item(path, tuple(schema), settings.item_column, ITEM_OPTION)
    columns = choose_named(path, tuple(schema), settings.columns, ITEM_OPTION)
    try:
        parts = [read_column(path, name, lambda values: values) for name in dict.fromkeys([item, *columns])]
        # The columns of a corrupt file may have different numbers of rows.
        shorter = next((part for part in parts if len(part) != len(parts[0])), None)
        if shorter is not None:
            raise ParquetError(f"{len(shorter)} rows of the column {shorter.name!r}, {len(parts[0])} of {item!r}")
        table = pl.DataFrame(parts)
    except ParquetError as error:
        raise InteractionError(
            f"{path}: cannot be read as Parquet: {error}; the file is corrupt or cut off, fetch or write it again"
        ) from error
    if not len(table):
        raise InteractionError(f"{path}: found no row, expected a row for each item")
    ids = _ids(path, table[item])
    split = len(settings.categories)
    numbered = columns[split : split + len(settings.numbers)]
    categories = {
        name: _categories(path, table[column], settings.separator)
        for name, column in zip(settings.categories, columns, strict=False)
    }
    numbers = [_numbers(path, table[column]) for column in numbered]
    values = np.stack(numbers, 1) if numbers else np.zeros((len(ids), 0))
    vectors = np.zeros((len(ids), 0), np.float32) if settings.vector is None else _vectors(path, table[columns[-1]])
    return ItemTable(ids, categories, values, vectors)


def _ids(path: Path, values: "pl.Series") -> list[str]:
    import polars as pl

    if not (values.dtype.is_integer() or values.dtype in (pl.String, pl.Categorical, pl.Enum)):
        raise _wrong_type(path, values, "integers or text, the ids of items")
    first_of: dict[str, int] = {}
    for row, item in enumerate(values.cast(pl.String), start=1):
        if item is None or not item.strip():
            raise InteractionError(f"{path}: row {row}: column {values.name!r}: the id is empty, expected an id")
        if "\n" in item or "\r" in item:
            raise InteractionError(f"{path}: row {row}: column {values.name!r}: found a line break in {preview(item)}")
        if first_of.setdefault(item, row) != row:
            raise duplicate_item_error(path, f"row {row}", item, f"row {first_of[item]}")
    return list(first_of)


def _categories(path: Path, values: "pl.Series", separator: str) -> list[tuple[str, ...]]:
    import polars as pl

    is_list, inner = _inner_type(values)
    if not (inner.is_integer() or inner in (pl.Boolean, pl.String, pl.Categorical, pl.Enum)):
        raise _wrong_type(path, values, f"text, integers or lists of them; {ITEM_OPTION}.numbers is for other numbers")
    categories = []
    for row, cell in enumerate(values.to_list(), start=1):
        parts = cell or [] if is_list else [] if cell is None else str(cell).split(separator)
        texts = [str(part) for part in parts if part is not None]
        categories.append(categories_of(texts, f"{path}: row {row}: column {values.name!r}"))
    return categories


def _numbers(path: Path, values: "pl.Series") -> NDArray[np.float64]:
    import polars as pl

    if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        raise _wrong_type(path, values, f"numbers; {ITEM_OPTION}.categories is for text")
    numbers = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        row = int(infinite[0])
        raise InteractionError(
            f"{path}: row {row + 1}: column {values.name!r}: found {numbers[row]}, expected a number, or null where it "
            "is missing"
        )
    return numbers


def _vectors(path: Path, values: "pl.Series") -> NDArray[np.float32]:
    """Return [N, length], NaN in rows without a vector."""
    import polars as pl

    is_list, inner = _inner_type(values)
    if not is_list or not inner.is_numeric():
        raise _wrong_type(path, values, "a list or an array of floats")
    cells = values.cast(pl.List(pl.Float32))
    lengths, filled_rows = cells.list.len(), np.flatnonzero(values.is_not_null().to_numpy())
    column = f"column {values.name!r}"
    if not len(filled_rows):
        raise InteractionError(f"{path}: all rows: {column}: found no vector, expected a list of floats")
    sizes = lengths.gather(filled_rows).to_numpy()
    wrong = np.flatnonzero((sizes != sizes[0]) | (sizes == 0))
    if len(wrong):
        row, size = filled_rows[wrong[0]] + 1, sizes[wrong[0]]
        raise InteractionError(
            f"{path}: row {row}: {column}: found a vector of {size} numbers, expected {sizes[0] or 'some'} as in row "
            f"{filled_rows[0] + 1}, or null where it is missing"
        )
    # All lists have the same length here, so their concatenation is a matrix.
    flat = cells.gather(filled_rows).explode().to_numpy().astype(np.float32).reshape(len(filled_rows), int(sizes[0]))
    invalid = np.flatnonzero(~np.isfinite(flat).all(1))
    if len(invalid):
        raise InteractionError(
            f"{path}: row {filled_rows[invalid[0]] + 1}: {column}: found a vector with an empty, infinite or undefined "
            "number, expected finite numbers; null in place of the whole vector if it is missing"
        )
    vectors = np.full((len(values), flat.shape[1]), np.nan, np.float32)
    vectors[filled_rows] = flat
    return vectors


def _inner_type(values: "pl.Series") -> "tuple[bool, pl.DataType]":
    """Return whether the cells are lists, and the type of their members or, without lists, of the cells."""
    import polars as pl

    if isinstance(values.dtype, pl.List | pl.Array):
        # `inner` may be a class or an instance; a Series turns it into an instance.
        return True, pl.Series([], dtype=values.dtype.inner).dtype
    return False, values.dtype


def _wrong_type(path: Path, values: "pl.Series", expected: str) -> InteractionError:
    return InteractionError(f"{path}: column {values.name!r}: found type {values.dtype}, expected {expected}")
