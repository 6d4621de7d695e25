"""Converts rows in file order to sequences, by the rules that define the data set of the SASRec papers.

1. Rows that do not pass the filters are dropped, see `filters`.
2. Users are numbered by first appearance in the file, including dropped rows. The rows of a user are sorted by time;
   rows of the same second stay in file order. On ML-1M half of all neighboring events share a second, so the test item
   depends on this.
3. Items are numbered from 1 by first appearance in that order: the events of the first user, then of the second,
   and so on.

Duplicate rows are kept: they are events.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import EventColumns
from datamodules.recommender.reading.filters import Filters, apply_filters
from datamodules.recommender.reading.interactions import Interactions

DEFAULT = Filters()


class Sequences(NamedTuple):
    """Content of a store; see `InteractionStore`."""

    offsets: NDArray[np.int64]  # [U + 1]
    items: NDArray[np.int32]  # [N], from 1
    times: NDArray[np.int64]  # [N] seconds
    user_ids: list[str]  # [U]
    item_ids: list[str]  # [I]
    features: EventColumns | None = None  # of each event


@dataclass
class _Columns:
    """Columns of the rows that remain, which `select` filters and sorts in place to bound the memory."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: NDArray[np.int64]
    features: EventColumns | None

    def select(self, index: NDArray[Any]) -> None:
        """Index the columns one after the other; all at once would need twice the memory."""
        self.users = self.users[index]
        self.items = self.items[index]
        self.times = self.times[index]
        if self.features is not None:
            codes, numbers, categories = self.features
            self.features = EventColumns(codes[index], numbers[index], categories)


def to_sequences(rows: Interactions, filters: Filters = DEFAULT) -> tuple[Sequences, str]:
    """Filter, sort and number the rows by the rules in the docstring of this module.

    Returns:
        The sequences, and the numbers of rows that the filters kept and dropped, for the log.

    Raises:
        InteractionError: the filters drop all rows.
    """
    passes, report = apply_filters(rows, filters)
    columns = _Columns(rows.users, rows.items, rows.times, rows.features)
    all_user_ids, all_item_ids = rows.user_ids, rows.item_ids
    del rows  # so that `columns` alone holds the arrays
    if not passes.all():
        columns.select(passes)
    del passes
    if not _is_sorted(columns.users, columns.times):
        # The sort is stable, and users have codes by first appearance.
        columns.select(np.lexsort((columns.times, columns.users)))
    counts = np.bincount(columns.users, minlength=len(all_user_ids))
    kept_users = np.flatnonzero(counts)
    offsets = np.concatenate([[0], np.cumsum(counts[kept_users])])
    new_of_old, kept_items = _number_by_appearance(columns.items, len(all_item_ids))
    user_ids, item_ids = [all_user_ids[user] for user in kept_users], [all_item_ids[item] for item in kept_items]
    items = new_of_old[columns.items]
    return Sequences(offsets, items, columns.times, user_ids, item_ids, columns.features), report


def _is_sorted(users: NDArray[np.int32], times: NDArray[np.int64]) -> bool:
    later_user = users[1:] > users[:-1]
    same_user = users[1:] == users[:-1]
    return bool(np.all(later_user | (same_user & (times[1:] >= times[:-1]))))


def _number_by_appearance(items: NDArray[np.int32], size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Number the items from 1 by first appearance.

    Returns:
        int32 [size], the new id of each old code (0 if unused); and int64 [I], the old code of each new id.
    """
    first = np.full(size, len(items), np.int64)
    # numpy keeps the last assignment to a repeated index; in reverse order this is the first appearance.
    first[items[::-1]] = np.arange(len(items) - 1, -1, -1)
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(items))]
    numbers = np.zeros(size, np.int32)
    numbers[order] = np.arange(1, len(order) + 1)
    return numbers, order
