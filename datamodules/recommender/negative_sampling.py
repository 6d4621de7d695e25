"""Samples items uniformly that a user has not interacted with."""

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events, Integers
from datamodules.recommender.features.trained_items import TrainedItems
from engine.determinism.stateless_rng import hash_integers


def absent_items(
    events: Events, starts: Integers, ends: Integers, *coordinates: int | Integers, among: TrainedItems | None = None
) -> NDArray[np.int64]:
    """Draw uniformly among the items that do not occur in the events ``starts[b]:ends[b]``.

    There is no rejection: with the distinct items of the row in order, ``h_0 < h_1 < ...``, there are ``h_i - 1 - i``
    absent items before ``h_i``, so the r-th absent item (from 0) is ``r + 1 +`` the number of ``i`` with ``h_i - 1 - i
    <= r``. A row that has every item draws from all of them.

    Args:
        events: events of all users.
        starts: [B], first event of each row.
        ends: [B], one past the last event of each row.
        *coordinates: coordinates of the hash; they broadcast to ``[B, ...]``.
        among: the only items to draw, which include those of the events; None: all items.

    Returns:
        int64 [B, ...]
    """
    num_items = events.num_items if among is None else len(among.items)
    counts, span = ends - starts, num_items + 1
    row = np.repeat(np.arange(len(counts)), counts)
    flat = np.arange(len(row)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    held = events.items[flat] if among is None else among.places[events.items[flat]]
    keys = np.sort(row * span + held)
    # np.unique uses hashing since numpy 2.3, which is five times slower here.
    row, held = np.divmod(keys[np.diff(keys, prepend=-1) > 0], span)
    distinct = np.bincount(row, minlength=len(counts))
    begins = np.cumsum(distinct) - distinct
    absent_before = held - 1 - (np.arange(len(row)) - begins[row])

    shape = (-1, *[1] * (np.broadcast(*coordinates).ndim - 1))
    rows, begins, free = (a.reshape(shape) for a in (np.arange(len(counts)), begins, num_items - distinct))
    draw = hash_integers(np.where(free > 0, free, num_items), *coordinates)
    skipped = np.searchsorted(row * span + absent_before, rows * span + draw, side="right") - begins
    drawn = draw + 1 + np.where(free > 0, skipped, 0)
    return drawn if among is None else among.items[drawn - 1]
