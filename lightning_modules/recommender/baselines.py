"""Scores items by popularity and by last-item transitions. A useful model beats both baselines.

Both count events of the training part and return scores as a network does, so the same metrics rank them.
"""

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datamodules.recommender.batch import History

Integers = NDArray[np.integer]

POPULARITY = "popularity"
"""Name of the baseline in metrics, and of the fallback in predictions."""

_CHUNK = 1 << 22  # events per chunk, which bounds the memory


class Popularity(nn.Module):
    """Scores an item by its number of events in the training part.

    Args:
        offsets: [U + 1] int64; the events of user u are `offsets[u]:offsets[u + 1]`.
        items: [N] items of the events, 1 to `num_items`.
        train_end: [U] int64, end of each user's training part.
        num_items: number of items.
    """

    counts: Tensor

    def __init__(self, offsets: Integers, items: Integers, train_end: Integers, num_items: int) -> None:
        super().__init__()
        counts = np.zeros(num_items + 1, np.int64)
        for low, left in remaining_training_events(offsets, train_end):
            counts += np.bincount(items[low : low + len(left)][left > 0], minlength=num_items + 1)
        self.register_buffer("counts", torch.from_numpy(counts))

    def scores(self, history: History) -> Tensor:
        """Return [B, num_items + 1] float64: column j is item j, column 0 is -inf. All rows share their memory."""
        # Apple's GPUs have no float64; in float32, items of nearly equal popularity may tie.
        scores = self.counts.to(torch.float32 if self.counts.device.type == "mps" else torch.float64)
        scores[0] = -torch.inf
        return scores.expand(len(history.items), -1)


def most_popular(counts: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Return (item, count) of the items with the most training events, the most popular first, ties by item number.

    Args:
        counts: [num_items], training events of item 1, 2, ...
        number: largest number of items; items without a training event are not returned.
    """
    best = heapq.nsmallest(number, enumerate(counts, start=1), key=lambda item: (-item[1], item[0]))
    return [(item, int(count)) for item, count in best if count > 0]


class LastItemTransition(nn.Module):
    """Scores an item by how often it followed the history's last item in the training part; popularity breaks ties.

    The counts are compressed sparse rows, with an entry for each pair that occurs.

    Args:
        offsets: see `Popularity`.
        items: see `Popularity`.
        train_end: see `Popularity`.
        num_items: see `Popularity`.
    """

    begins: Tensor  # [num_items + 2] int64: the entries of item a are begins[a]:begins[a + 1]
    followers: Tensor  # [pairs] int32
    counts: Tensor  # [pairs] int32

    def __init__(self, offsets: Integers, items: Integers, train_end: Integers, num_items: int) -> None:
        super().__init__()
        self.popularity = Popularity(offsets, items, train_end, num_items)
        span = num_items + 1
        # Allocated once for all pairs: lists of chunks would need the memory twice when they are joined.
        keys = np.empty(int(np.maximum(train_end - offsets[:-1] - 1, 0).sum()), np.int64)
        filled = 0
        for low, left in remaining_training_events(offsets, train_end):
            first = low + np.flatnonzero(left > 1)
            pairs = keys[filled : filled + len(first)]
            pairs[:] = items[first]
            pairs *= span
            pairs += items[first + 1]
            filled += len(first)
        # A sort in place; equal pairs become neighbors, whose first `diff` finds.
        keys.sort()
        distinct = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(distinct, append=len(keys))
        item, follower = np.divmod(keys[distinct], span)
        self.register_buffer("begins", torch.from_numpy(np.searchsorted(item, np.arange(span + 1))))
        self.register_buffer("followers", torch.from_numpy(follower.astype(np.int32)))
        self.register_buffer("counts", torch.from_numpy(counts.astype(np.int32)))

    def scores(self, history: History) -> Tensor:
        """Return [B, num_items + 1] float64: column j is item j, column 0 is -inf; popularity without a history."""
        last = history.items.gather(1, (history.lengths - 1).clamp(min=0)[:, None])[:, 0]
        begins, entries = self.begins[last], self.begins[last + 1] - self.begins[last]
        row = torch.repeat_interleave(torch.arange(len(last), device=last.device), entries)
        # [entries of all rows]: the begin of the row's item, plus 0, 1, ...
        entry = torch.arange(len(row), device=last.device) + (begins - entries.cumsum(0) + entries)[row]
        # A fraction below 1 decides only where the counts are equal.
        scores = self.popularity.scores(history) / (self.popularity.counts.max() + 1)
        scores[row, self.followers[entry].long()] += self.counts[entry]
        return scores


def remaining_training_events(offsets: Integers, train_end: Integers) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield for each chunk its first event and, of each event, the number of its user's training events from it on.

    The number is below 1 after the training part, and above 1 if the next event is a training event too.

    Args:
        offsets: [U + 1], see `Events.offsets`.
        train_end: [U], index after each user's last training event.
    """
    total = int(offsets[-1])
    for low in range(0, total, _CHUNK):
        events = np.arange(low, min(low + _CHUNK, total))
        yield low, train_end[np.searchsorted(offsets, events, side="right") - 1] - events
