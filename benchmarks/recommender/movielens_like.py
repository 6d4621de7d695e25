"""Interactions of the size and shape of MovieLens-1M, made up on the spot: the data may not be passed on."""

import numpy as np

from datamodules.recommender.sequences import EventArrays

_MEDIAN, _MEAN, _SHORTEST, _LONGEST = 96, 165, 18, 2277
"""Events of a user of MovieLens-1M (items with five ratings or more)."""


def movielens_like(num_users: int = 6040, num_items: int = 3416, seed: int = 0) -> EventArrays:
    """Users with log-normal numbers of events, each of an item of its own, some seconds or months apart.

    Items are uniform and say nothing of the next one: this is for speed, not for ranking figures.
    """
    random = np.random.default_rng(seed)
    spread = np.sqrt(2 * np.log(_MEAN / _MEDIAN))
    counts = np.clip(random.lognormal(np.log(_MEDIAN), spread, num_users), _SHORTEST, min(_LONGEST, num_items))
    offsets = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
    items = [random.permutation(num_items)[:count] + 1 for count in np.diff(offsets)]
    # A quarter of the gaps are below a second, and some are months: people rate whole pages at a time.
    gaps = np.floor(random.lognormal(1.5, 2.5, offsets[-1])).astype(np.int64)
    times = 956_703_932 + np.cumsum(gaps)
    return EventArrays(offsets, np.concatenate(items).astype(np.int32), times, num_items)
