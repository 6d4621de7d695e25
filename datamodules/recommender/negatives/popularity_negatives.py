"""Samples items by popularity among those that a user has not interacted with."""

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events, Integers
from datamodules.recommender.negatives.uniform_negatives import InteractedItems
from engine.determinism.stateless_rng import hash_uniform

_UNIT = 1 << 10
"""Weight of an item that is a target once. Weights are integers, so that their sums are exact in any order."""


class PopularItems:
    """Draws items with probabilities proportional to a power of how often each is a target.

    Args:
        counts: [num_items + 1] number of times that each item is a target in training; entry 0 is ignored.
        power: exponent of the counts: 1 is popularity, 0 is uniform over all items that are targets.
    """

    weights: NDArray[np.int64]
    """[num_items + 1] the probability of an item is its weight divided by the sum of the weights."""

    def __init__(self, counts: Integers, power: float) -> None:
        powers = np.where(counts > 0, np.maximum(counts, 1).astype(np.float64) ** power, 0)
        powers[0] = 0
        # Integer weights: cumulative sums are exact, and draws are the same on every machine.
        self.weights = np.rint(powers * _UNIT).astype(np.int64)
        self._ends = np.cumsum(self.weights)  # the weights of items 1 to i end at _ends[i]

    def free(self, interacted: InteractedItems) -> NDArray[np.int64]:
        """Return the weight of what each row draws from, [B]: the items that it lacks, or all if it lacks none."""
        total = int(self._ends[-1])
        # bincount adds weights in float64, which is exact for integers below 2**53.
        weights = self.weights[interacted.items]
        lacked = total - np.bincount(interacted.row, weights, len(interacted.numbers)).astype(np.int64)
        return np.where(lacked > 0, lacked, total)

    def draw_absent(self, interacted: InteractedItems, *coordinates: int | Integers) -> NDArray[np.int64]:
        """Draw among the items that a row lacks. A row that has every target draws from all of them.

        This is the rule of `absent_items` with weights: the items of a row cut intervals out of the line of all
        weights, and a point of what is left is drawn. It needs no rejection.

        Args:
            interacted: distinct items of each row.
            *coordinates: coordinates of the hash; they broadcast to `[B, ...]`.

        Returns:
            int64 [B, ...]
        """
        span, total = int(self._ends[-1]) + 1, int(self._ends[-1])
        own_weights = self.weights[interacted.items]
        cut = np.concatenate([np.zeros(1, np.int64), np.cumsum(own_weights)])  # [D + 1] weight of all held items before
        lacked = total - (cut[interacted.begins + interacted.numbers] - cut[interacted.begins])
        # Weight of the absent items before each held item.
        # _ends[i - 1] is the point at which item i begins.
        before = self._ends[interacted.items - 1] - (cut[:-1] - cut[interacted.begins[interacted.row]])
        shape = (-1, *[1] * (np.broadcast(*coordinates).ndim - 1))
        rows, begins = np.arange(len(interacted.numbers)).reshape(shape), interacted.begins.reshape(shape)
        free, lacking = np.where(lacked > 0, lacked, total).reshape(shape), (lacked > 0).reshape(shape)
        # The product of a number below 1 may round to the bound.
        draw = np.minimum((hash_uniform(*coordinates) * free).astype(np.int64), free - 1)
        # One search for all rows: row * span keeps the rows apart in a single ascending array.
        indices = np.searchsorted(interacted.row * span + before, rows * span + draw, side="right")
        point = draw + np.where(lacking, cut[indices] - cut[begins], 0)
        return np.searchsorted(self._ends, point, side="right").astype(np.int64)


def target_counts(events: Events, users: Integers, ends: Integers, max_length: int | None) -> NDArray[np.int64]:
    """Count how often each item is a target of the training rows: int64 [num_items + 1].

    Args:
        events: events of all users.
        users: [M] user of each row.
        ends: [M] end of each row, see `TrainDataset`.
        max_length: the last targets of each row count, at most this many; None: all, which is all but the first event.
    """
    counts, rows = np.zeros(events.num_items + 1, np.int64), 1 << 14
    for first in range(0, len(users), rows):
        stop = ends[first : first + rows]
        start = events.offsets[users[first : first + rows]] + 1
        start = start if max_length is None else np.maximum(start, stop - max_length)
        lengths = stop - start
        indices = np.arange(lengths.sum()) + np.repeat(start - (np.cumsum(lengths) - lengths), lengths)
        items = events.items[indices]
        # A corrupt item is reported where it is read for training.
        counts += np.bincount(items[(items > 0) & (items <= events.num_items)], minlength=len(counts))
    return counts
