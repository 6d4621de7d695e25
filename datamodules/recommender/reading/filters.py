"""Filters interactions by a smallest rating, and by smallest numbers of rows of an item and of a user.

1. Rows with a rating below `min_rating` are dropped.
2. Items with fewer than `min_item_interactions` of the remaining rows are dropped.
3. Users with fewer than `min_user_interactions` of the then remaining rows are dropped.

Steps 2 and 3 run once, as in the SASRec papers. With `k_core` they are repeated until nothing changes. What remains
is the largest set of rows in which every item and every user has its minimum: the k-core of the graph of users and
items (Batagelj and Zaversnik, arXiv cs/0310049) with a k for each side, whatever the order of the steps.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.interactions import Interactions


class Filters(NamedTuple):
    """Settings of the filters, with the defaults of the SASRec papers."""

    min_item_interactions: int = 5
    min_user_interactions: int = 1
    k_core: bool = False  # repeat the two until nothing changes
    min_rating: float | None = None  # None: ratings are not read


class Filtered(NamedTuple):
    """Rows that pass the filters."""

    kept: NDArray[np.bool_]  # [N]
    report: str  # number of rows, of those kept, and of those dropped by each filter


def apply_filters(rows: Interactions, filters: Filters) -> Filtered:
    """Return which rows pass.

    Raises:
        InteractionError: no interaction remains.
    """
    passes = np.ones(len(rows.users), np.bool_)
    if filters.min_rating is not None:
        assert rows.ratings is not None, "the layout has a column of ratings"
        passes = rows.ratings >= filters.min_rating
    sides = (rows.items, len(rows.item_ids), filters.min_item_interactions), (
        rows.users, len(rows.user_ids), filters.min_user_interactions
    )  # fmt: skip
    below_rating = len(passes) - int(np.count_nonzero(passes))
    dropped, rounds = [0, 0], 0
    while True:
        before = sum(dropped)
        for side, (codes, size, min_count) in enumerate(sides):
            dropped[side] += _drop_rare(passes, codes, size, min_count)
        rounds += 1
        if not filters.k_core or sum(dropped) == before:
            break
    report = report_rows(filters, len(passes), below_rating, dropped, rounds)
    if not passes.any():
        raise nothing_left(filters, len(passes), len(rows.user_ids), len(rows.item_ids), report)
    return Filtered(passes, report)


def _drop_rare(passes: NDArray[np.bool_], codes: NDArray[np.int32], size: int, min_count: int) -> int:
    """Drop the kept rows of users or items with too few of them, in place; return the number of dropped rows."""
    all_kept = bool(passes.all())
    counts = np.bincount(codes if all_kept else codes[passes], minlength=size)
    # Those without rows have nothing to drop.
    if not ((counts > 0) & (counts < min_count)).any():
        return 0
    before = int(np.count_nonzero(passes))
    passes &= (counts >= min_count)[codes]
    return before - int(np.count_nonzero(passes))


def report_rows(filters: Filters, rows: int, below_rating: int, dropped: Sequence[int], rounds: int) -> str:
    """Return the numbers of all rows, of those kept, and of those dropped by each filter.

    Args:
        filters: the settings.
        rows: number of all rows.
        below_rating: rows with too low a rating.
        dropped: rows of rare items and of rare users.
        rounds: how many times these two filters ran.
    """
    parts = [f"{rows - below_rating - sum(dropped):,} kept"]
    if filters.min_rating is not None:
        parts.append(f"{below_rating:,} with a rating below {filters.min_rating:g}")
    for name, minimum, count in zip(("items", "users"), filters[:2], dropped, strict=True):
        parts.append(f"{count:,} of {name} with fewer than {minimum} rows")
    repeated = f" ({rounds} rounds of the filters, until nothing changed)" if filters.k_core else ""
    return f"{rows:,} rows = {' + '.join(parts)}{repeated}"


def nothing_left(filters: Filters, rows: int, users: int, items: int, report: str) -> InteractionError:
    """Return the error of filters that drop all rows."""
    values = {name: value for name, value in filters._asdict().items() if value not in (None, False)}
    settings = " and ".join(f"{name}={value}" for name, value in values.items())
    return InteractionError(
        f"nothing is left of {rows} rows ({users} users, {items} items): none passes {settings}; lower them\n{report}"
    )
