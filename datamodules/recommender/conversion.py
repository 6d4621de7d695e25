"""From rows in file order to sequences: the rule that makes the data set of the SASRec papers.

1. Items with fewer than ``min_item_interactions`` rows are dropped, then users with fewer than
   ``min_user_interactions`` of what is left. Once each: this is the papers' filter, not an iterated k-core.
2. Users are numbered by first appearance in the file, dropped rows included. Each user's rows are sorted by time; rows
   of the same second stay in file order. On ML-1M half of all neighbouring events share a second, so the test item
   depends on this.
3. Items are numbered from 1 by first appearance in that order: the first user's events, then the second's, and so on.

Duplicate rows are kept: they are events.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.formats import InteractionError
from datamodules.recommender.reading import Interactions


class Sequences(NamedTuple):
    """What a store holds; see ``InteractionStore``."""

    offsets: NDArray[np.int64]  # [U + 1]
    items: NDArray[np.int32]  # [N], from 1
    times: NDArray[np.int64]  # [N] seconds
    user_ids: list[str]  # [U]
    item_ids: list[str]  # [I]


def to_sequences(rows: Interactions, min_item_interactions: int = 5, min_user_interactions: int = 1) -> Sequences:
    """Filter, order and number (see above).

    Raises:
        InteractionError: nothing is left after the filters.
    """
    columns, all_user_ids, all_item_ids = [rows.users, rows.items, rows.times], rows.user_ids, rows.item_ids
    found = f"{len(rows.users)} rows ({len(all_user_ids)} users, {len(all_item_ids)} items)"
    del rows  # so that _select can let go of the columns
    for place, least, ids in ((1, min_item_interactions, all_item_ids), (0, min_user_interactions, all_user_ids)):
        frequent = np.bincount(columns[place], minlength=len(ids)) >= least
        if not frequent.all():
            _select(columns, frequent[columns[place]])
    if not len(columns[0]):
        raise InteractionError(
            f"nothing is left of {found}: none passes min_item_interactions={min_item_interactions} and "
            f"min_user_interactions={min_user_interactions}; lower them"
        )
    users, _, times = columns
    if not _is_sorted(users, times):
        order = np.lexsort((times, users))  # stable, and users have codes by first appearance
        del users, times
        _select(columns, order)
    users, items, times = columns
    counts = np.bincount(users, minlength=len(all_user_ids))
    kept_users = np.flatnonzero(counts)
    offsets = np.concatenate([[0], np.cumsum(counts[kept_users])])
    new_of_old, kept_items = _number_by_appearance(items, len(all_item_ids))
    user_ids, item_ids = [all_user_ids[user] for user in kept_users], [all_item_ids[item] for item in kept_items]
    return Sequences(offsets, new_of_old[items], times, user_ids, item_ids)


def _select(columns: list[NDArray[np.integer]], index: NDArray[Any]) -> None:
    """Index all columns, one after the other: 100 million rows would else be there twice."""
    for place in range(len(columns)):
        columns[place] = columns[place][index]


def _is_sorted(users: NDArray[np.int32], times: NDArray[np.int64]) -> bool:
    later_user = users[1:] > users[:-1]
    same_user = users[1:] == users[:-1]
    return bool(np.all(later_user | (same_user & (times[1:] >= times[:-1]))))


def _number_by_appearance(items: NDArray[np.int32], size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """New ids from 1 by first appearance: [size] new id of each old code (0: unused), [I] old code of each new id."""
    first = np.full(size, len(items), np.int64)
    # Of an index that stands there several times numpy keeps the last assignment: backwards, the first appearance.
    first[items[::-1]] = np.arange(len(items) - 1, -1, -1)
    kept = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(items))]
    numbers = np.zeros(size, np.int32)
    numbers[kept] = np.arange(1, len(kept) + 1)
    return numbers, kept
