"""Groups items into head, middle and tail of a catalog by their popularity.

As in Abdollahpouri et al., User-centered Evaluation of Popularity Bias in Recommender Systems (UMAP 2021): the head are
the most popular items with a fifth of the training events, the tail the least popular items with a fifth. Items with
equally many events are in one group, so that the groups do not depend on the order of the items.
"""

import numpy as np
from numpy.typing import NDArray

SHARE = 0.2
"""Share of the training events that are of head items, and share that are of tail items."""


def popularity_bounds(counts: NDArray[np.integer]) -> tuple[int, int]:
    """Return (head_from, tail_to): an item is in the head from head_from events on, in the tail up to tail_to.

    The head is the smallest group that has at least `SHARE` of the events, the tail the largest that has at most
    `SHARE` of them; it includes the items without an event.

    Args:
        counts: [num_items] number of training events of each item.
    """
    number, items = np.unique(counts, return_counts=True)
    below = np.cumsum(number * items.astype(np.int64))  # events of the items with at most this number
    total = int(below[-1])
    # Number of events of the items that have at least this many.
    above = total - below + number * items
    head = int(np.flatnonzero(above >= SHARE * total)[-1])
    tail = int(np.searchsorted(below, SHARE * total, side="right")) - 1
    # The tail ends below the head, so no item is in both groups.
    return int(number[head]), min(int(number[tail]) if tail >= 0 else 0, int(number[head]) - 1)
