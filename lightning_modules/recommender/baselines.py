"""What needs no training: popularity and last-item transitions. A model that does not beat them has learnt nothing.

Both are counted on the training part alone and give scores as a network does, so they go through the same ranking.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datamodules.recommender.batch import History

Integers = NDArray[np.integer]

_CHUNK = 1 << 22  # events looked at together


class Popularity(nn.Module):
    """An item's score is its number of events in the training part.

    Args:
        offsets: int64 [U + 1], the events of user u are ``offsets[u]:offsets[u + 1]``.
        items: [N], 1 to ``num_items``.
        train_end: int64 [U], where each user's training part ends.
    """

    counts: Tensor

    def __init__(self, offsets: Integers, items: Integers, train_end: Integers, num_items: int) -> None:
        super().__init__()
        counts = np.zeros(num_items + 1, np.int64)
        for low, left in _events_left(offsets, train_end):
            counts += np.bincount(items[low : low + len(left)][left > 0], minlength=num_items + 1)
        self.register_buffer("counts", torch.from_numpy(counts))

    def scores(self, history: History) -> Tensor:
        """float64 [B, num_items + 1]: column j is item j, column 0 is -inf. A view: all rows are the same memory."""
        # Apple's GPUs have no float64; in float32 transitions of nearly equal popularity may tie.
        scores = self.counts.to(torch.float32 if self.counts.device.type == "mps" else torch.float64)
        scores[0] = -torch.inf
        return scores.expand(len(history.items), -1)


class LastItemTransition(nn.Module):
    """An item's score is how often it followed the history's last item in the training part; ties go by popularity.

    The counts are kept as compressed sparse rows: one entry for each pair that occurs, never num_items squared.

    Args:
        offsets, items, train_end, num_items: as for :class:`Popularity`.
    """

    begins: Tensor  # [num_items + 2] int64: the entries of item a are begins[a]:begins[a + 1]
    followers: Tensor  # [pairs] int32
    counts: Tensor  # [pairs] int32

    def __init__(self, offsets: Integers, items: Integers, train_end: Integers, num_items: int) -> None:
        super().__init__()
        self.popularity = Popularity(offsets, items, train_end, num_items)
        span = num_items + 1
        keys = np.empty(int(np.maximum(train_end - offsets[:-1] - 1, 0).sum()), np.int64)
        filled = 0
        for low, left in _events_left(offsets, train_end):
            first = low + np.flatnonzero(left > 1)
            pairs = keys[filled : filled + len(first)]
            pairs[:] = items[first]
            pairs *= span
            pairs += items[first + 1]
            filled += len(first)
        keys.sort()
        distinct = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(distinct, append=len(keys))
        item, follower = np.divmod(keys[distinct], span)
        self.register_buffer("begins", torch.from_numpy(np.searchsorted(item, np.arange(span + 1))))
        self.register_buffer("followers", torch.from_numpy(follower.astype(np.int32)))
        self.register_buffer("counts", torch.from_numpy(counts.astype(np.int32)))

    def scores(self, history: History) -> Tensor:
        """float64 [B, num_items + 1]: column j is item j, column 0 is -inf; popularity alone without a history."""
        last = history.items.gather(1, (history.lengths - 1).clamp(min=0)[:, None])[:, 0]
        begins, entries = self.begins[last], self.begins[last + 1] - self.begins[last]
        row = torch.repeat_interleave(torch.arange(len(last), device=last.device), entries)
        entry = torch.arange(len(row), device=last.device) + (begins - entries.cumsum(0) + entries)[row]
        # A fraction below 1 decides only where the counts are equal.
        scores = self.popularity.scores(history) / (self.popularity.counts.max() + 1)
        scores[row, self.followers[entry].long()] += self.counts[entry]
        return scores


def _events_left(offsets: Integers, train_end: Integers) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Chunk by chunk, the first event and, for each event, how many of its user's training part are left with it.

    0 or less says that the event is no training event; 2 or more, that the next one is too.
    """
    total = int(offsets[-1])
    for low in range(0, total, _CHUNK):
        events = np.arange(low, min(low + _CHUNK, total))
        yield low, train_end[np.searchsorted(offsets, events, side="right") - 1] - events
