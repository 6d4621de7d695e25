"""Encodes a table of items as arrays of a fixed width, by vocabularies and statistics of the training items.

An item has slots of categories. Each column of categories has as many slots as its longest cell; a category has the
share 1 / (number of the cell's known categories), so their vectors are averaged. A cell without a known category has
the column's code of *unknown*: it is empty, the item has no row, or no training item has its categories. A column of
numbers or vectors has a slot for the code of *missing*.

Numbers become `(x - mean) / standard deviation`, limited to [-5, 5]; vectors become `(v - mean) / norm`, with the
root mean square of the norms of `v - mean`. Means, deviations and norms are over the training items, each of
which counts once. A missing number or vector is 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.batch import ItemFeatureArrays
from datamodules.recommender.features.item_table import ItemTable

LIMIT = 5.0
"""Largest standardized number. Without a limit, a price of a million would decide the score of a new item."""


SMALLEST_DEVIATION = 1e-9
"""Share of the largest absolute number below which a standard deviation is rounding: the numbers are all equal."""


class _Slots(NamedTuple):
    """Codes of one column; they count from 0."""

    codes: NDArray[np.int32]  # [N, slots]
    shares: NDArray[np.float32]  # [N, slots], 0 where a slot is empty
    size: int  # number of codes


def encode_items(table: ItemTable, row_of: NDArray[np.int64], trained: NDArray[np.bool_]) -> ItemFeatureArrays:
    """Encode the features of items.

    Args:
        table: the rows.
        row_of: [N + 1] row of item 0 (padding), 1, 2, ...; -1 without one.
        trained: [N + 1] whether an item occurs in the training.
    """
    training_rows = np.unique(row_of[trained & (row_of >= 0)])
    slots = [_category_slots(cells, row_of, training_rows) for cells in table.categories.values()]
    dense, missing = _standardize(table.numbers, row_of, training_rows)
    slots += [_missing_slots(column) for column in missing.T]
    if table.vectors.shape[1]:
        vectors, without = _center(table.vectors, row_of, training_rows)
        dense = np.concatenate((dense, vectors), 1)
        slots.append(_missing_slots(without))
    firsts = np.cumsum([1, *(column.size for column in slots)])  # code 0 means an empty slot
    codes = np.concatenate([column.codes + first for column, first in zip(slots, firsts, strict=False)], 1)
    shares = np.concatenate([column.shares for column in slots], 1)
    # The codes of a column have been shifted; an empty slot gets code 0 again.
    codes, shares = codes * (shares > 0), shares.copy()
    codes[0], shares[0], dense[0] = 0, 0, 0
    is_trained = np.zeros(int(firsts[-1]), np.bool_)
    is_trained[codes[trained].ravel()] = True
    is_trained[0] = False
    return ItemFeatureArrays(codes.astype(np.int32), shares, dense.astype(np.float32), is_trained, trained)


def _category_slots(
    cells: Sequence[tuple[str, ...]], row_of: NDArray[np.int64], training_rows: NDArray[np.int64]
) -> _Slots:
    """Return the slots of a column of categories; code 0 means unknown."""
    names = sorted({name for row in training_rows for name in cells[row]})
    code_of = {name: code for code, name in enumerate(names, start=1)}
    coded = [[code_of[name] for name in cell if name in code_of] or [0] for cell in cells]
    width = max((len(row) for row in coded), default=1)
    codes = np.zeros((len(cells) + 1, width), np.int32)
    shares = np.zeros((len(cells) + 1, width), np.float32)
    # The last row of the table stands for items that the file does not have.
    shares[-1, 0] = 1  # of items without a row, whose row is -1
    for row, found in enumerate(coded):
        codes[row, : len(found)], shares[row, : len(found)] = found, 1 / len(found)
    return _Slots(codes[row_of], shares[row_of], 1 + len(names))


def _missing_slots(missing: NDArray[np.bool_]) -> _Slots:
    """Return the slot of a column of numbers or vectors, whose only code means missing."""
    return _Slots(np.zeros((len(missing), 1), np.int32), missing[:, None].astype(np.float32), 1)


def _standardize(
    numbers: NDArray[np.float64], row_of: NDArray[np.int64], training_rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return standardized numbers [N + 1, columns], and where they are missing."""
    table = np.vstack((numbers, np.full(numbers.shape[1], np.nan)))
    training_values = table[training_rows]
    # np.nanmean and np.nanstd would warn about a column without a number.
    known = ~np.isnan(training_values)
    count = np.maximum(known.sum(0), 1)
    largest = np.abs(training_values).max(0, initial=0.0, where=known)
    # Numbers are scaled to [-1, 1] by a power of two, which is exact, so that no square or sum overflows.
    exponent = np.frexp(largest)[1]
    training_values = np.ldexp(training_values, -exponent)
    mean = np.nansum(training_values, 0) / count
    deviation = np.sqrt(np.nansum((training_values - mean) ** 2, 0) / count)
    # A column whose training items all have the same number distinguishes no items: it becomes 0. The mean of equal
    # numbers is rounded, so their deviation need not be exactly 0.
    differs = deviation > SMALLEST_DEVIATION * np.ldexp(largest, -exponent)
    values = table[row_of]
    with np.errstate(over="ignore"):  # of an untrained item's number, which is limited below
        scaled = (np.ldexp(values, -exponent) - mean) / np.where(differs, deviation, 1.0)
    missing = np.isnan(values)
    return np.where(missing | ~differs, 0.0, scaled.clip(-LIMIT, LIMIT)), missing


def _center(
    vectors: NDArray[np.float32], row_of: NDArray[np.int64], training_rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return centered and scaled vectors [N + 1, length], and which items have none."""
    # The last row stands for items without a row, whose row_of is -1.
    table = np.vstack((vectors, np.full(vectors.shape[1], np.nan, np.float32)))
    # A row without a vector is NaN in all columns.
    missing = np.isnan(table[:, 0])
    training_values = table[training_rows[~missing[training_rows]]]
    if len(training_values):
        # Sums over many items lose digits in float32.
        mean = training_values.mean(0, dtype=np.float64)
        norm = np.sqrt(((training_values - mean) ** 2).sum(1).mean())
        table = ((table - mean) / (norm or 1.0)).astype(np.float32)
    return np.where(missing[row_of, None], np.float32(0), table[row_of]), missing[row_of]
