"""Selects items that occur in training, to draw negatives among them alone."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events, Integers
from datamodules.recommender.splits import SplitExamples


class TrainedItems(NamedTuple):
    """Items with a training event, renumbered from 1 without gaps."""

    items: NDArray[np.int64]  # [T] items, ascending
    number_of: NDArray[np.int64]  # [num_items + 1] new number of an item, from 1; 0 if it has no training event

    @classmethod
    def from_mask(cls, trained: NDArray[np.bool_]) -> "TrainedItems":
        """Number the items of a mask [num_items + 1]."""
        return cls(np.flatnonzero(trained), np.where(trained, np.cumsum(trained), 0))


def items_of_examples(events: Events, examples: SplitExamples, chunk: int = 1 << 22) -> NDArray[np.bool_]:
    """Return bool [num_items + 1]: which items occur in the training rows; false for 0 (padding).

    Users with a single training event have no row, so their item is not trained.

    Args:
        events: events of all users.
        examples: the training rows.
        chunk: events processed at once (affects memory, not the result).
    """
    trained = np.zeros(events.num_items + 1, np.bool_)
    starts, ends = events.offsets[examples.users], np.asarray(examples.ends)
    steps = np.cumsum(ends - starts)
    first = 0
    while first < len(starts):
        # Rows with about `chunk` events in total, and at least a single row.
        last = max(int(np.searchsorted(steps, (steps[first - 1] if first else 0) + chunk)), first + 1)
        trained[_items(events, starts[first:last], ends[first:last])] = True
        first = last
    return trained


def _items(events: Events, starts: Integers, ends: Integers) -> Integers:
    counts = ends - starts
    event_indices = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    items: Integers = events.items[event_indices]
    return items
