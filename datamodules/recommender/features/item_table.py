"""Defines a table of items as it is read from a file: ids, categories, numbers and vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.reading.errors import InteractionError, preview

ITEM_OPTION = "data.init_args.item_features"

MAX_CATEGORIES = 64
"""Largest number of categories in a cell. A cell with more is not a list of categories, or has another separator."""


class ItemTable(NamedTuple):
    """N rows in file order."""

    ids: list[str]
    categories: dict[str, list[tuple[str, ...]]]  # {column: categories of each row, each once, sorted}
    numbers: NDArray[np.float64]  # [N, columns of numbers], NaN where missing
    vectors: NDArray[np.float32]  # [N, length], NaN in rows without a vector; [N, 0] without such a column


def categories_of(cell: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the categories of a cell, each once and sorted; none if it is empty.

    Raises:
        InteractionError: there are more than `MAX_CATEGORIES`.
    """
    categories = tuple(sorted({text.strip() for text in cell} - {""}))
    if len(categories) > MAX_CATEGORIES:
        raise InteractionError(
            f"{where}: found {len(categories)} categories, expected {MAX_CATEGORIES} at most; is "
            f"{ITEM_OPTION}.separator right?"
        )
    return categories


def duplicate_item_error(path: Path, where: str, item: str, before: str) -> InteractionError:
    """Return the error of an id that occurs twice."""
    return InteractionError(
        f"{path}: {where}: found the item {preview(item)} again, which {before} has already; expected one row for each "
        "item"
    )
