"""Samples items uniformly that a user has not interacted with."""

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events, Integers
from datamodules.recommender.features.trained_items import TrainedItems
from engine.determinism.stateless_rng import hash_integers


class InteractedItems:
    """Distinct items of the events `starts[b]:ends[b]` of each row b.

    Args:
        events: events of all users.
        starts: [B], first event of each row.
        ends: [B], one past the last event of each row.
        among: the only items that are drawn, a superset of the events' items; None: all items.
    """

    row: NDArray[np.int64]
    """[D] row of each distinct item, ascending."""

    items: NDArray[np.int64]
    """[D] the distinct items, ascending in each row."""

    numbers: NDArray[np.int64]
    """[B] number of distinct items of each row."""

    begins: NDArray[np.int64]
    """[B] index of each row's first item among the D items."""

    def __init__(self, events: Events, starts: Integers, ends: Integers, among: TrainedItems | None = None) -> None:
        self._among = among
        counts, self._span = ends - starts, events.num_items + 1
        row = np.repeat(np.arange(len(counts)), counts)
        flat = np.arange(len(row)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        keys = np.sort(row * self._span + events.items[flat])
        # np.unique uses hashing since numpy 2.3, which is five times slower here.
        self._keys = keys[np.diff(keys, prepend=-1) > 0]
        self.row, self.items = np.divmod(self._keys, self._span)
        self.numbers = np.bincount(self.row, minlength=len(counts))
        self.begins = np.cumsum(self.numbers) - self.numbers

    @property
    def num_items(self) -> int:
        """Number of items that may be drawn."""
        return self._span - 1 if self._among is None else len(self._among.items)

    @property
    def free(self) -> NDArray[np.int64]:
        """[B] number of items that each row draws from: those that it lacks, or all if it lacks none."""
        return np.where(self.numbers < self.num_items, self.num_items - self.numbers, self.num_items)

    def contain(self, items: Integers) -> NDArray[np.bool_]:
        """Return whether each row has each of the items: [M] -> [B, M]."""
        if not len(self._keys):
            return np.zeros((len(self.numbers), len(items)), np.bool_)
        wanted_keys = np.arange(len(self.numbers))[:, None] * self._span + items
        indices = np.minimum(np.searchsorted(self._keys, wanted_keys), len(self._keys) - 1)
        return np.equal(self._keys[indices], wanted_keys)

    def draw_absent(self, *coordinates: int | Integers) -> NDArray[np.int64]:
        """Draw uniformly among the items that a row lacks; see `absent_items`."""
        numbers = self.items if self._among is None else self._among.number_of[self.items]
        # h_i - 1 - i for each held item, see `absent_items`: number of absent items before it.
        absent_before = numbers - 1 - (np.arange(len(self.row)) - self.begins[self.row])
        shape = (-1, *[1] * (np.broadcast(*coordinates).ndim - 1))
        rows, begins = np.arange(len(self.numbers)).reshape(shape), self.begins.reshape(shape)
        lacking = (self.numbers < self.num_items).reshape(shape)
        draw = hash_integers(self.free.reshape(shape), *coordinates)
        span = self.num_items + 1
        # One search for all rows: row * span offsets keep the rows apart in a single ascending array.
        skipped = np.searchsorted(self.row * span + absent_before, rows * span + draw, side="right") - begins
        drawn = draw + 1 + np.where(lacking, skipped, 0)
        return drawn if self._among is None else self._among.items[drawn - 1]


def absent_items(
    events: Events, starts: Integers, ends: Integers, *coordinates: int | Integers, among: TrainedItems | None = None
) -> NDArray[np.int64]:
    """Draw uniformly among the items that do not occur in the events `starts[b]:ends[b]`.

    There is no rejection: with the distinct items of the row in order, `h_0 < h_1 < ...`, there are `h_i - 1 - i`
    absent items before `h_i`, so the r-th absent item (from 0) is `r + 1 +` the number of `i` with `h_i - 1 - i
    <= r`. A row that has every item draws from all of them.

    Args:
        events: events of all users.
        starts: [B], first event of each row.
        ends: [B], index after the last event of each row.
        *coordinates: coordinates of the hash; they broadcast to `[B, ...]`.
        among: the only items to draw, a superset of the events' items; None: all items.

    Returns:
        int64 [B, ...]
    """
    return InteractedItems(events, starts, ends, among).draw_absent(*coordinates)
