"""Generates interactions of the size and shape of MovieLens-1M, because its license does not allow redistribution."""

import numpy as np

from datamodules.recommender.events import EventArrays

_MEDIAN, _MEAN, _SHORTEST, _MAX_LENGTH = 96, 165, 18, 2277
"""Median, mean, smallest and largest number of events of a user of MovieLens-1M (items with five ratings or more)."""


def movielens_like(num_users: int = 6040, num_items: int = 3416, seed: int = 0) -> EventArrays:
    """Return users with log-normal numbers of events, each of a different item, seconds to months apart.

    Items are uniform and independent: the data are for measuring speed, not quality.
    """
    random = np.random.default_rng(seed)
    # A log-normal distribution has the mean exp(mu + sigma^2 / 2) and the median exp(mu).
    spread = np.sqrt(2 * np.log(_MEAN / _MEDIAN))
    counts = np.clip(random.lognormal(np.log(_MEDIAN), spread, num_users), _SHORTEST, min(_MAX_LENGTH, num_items))
    offsets = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
    # Users rate an item once.
    items = [random.permutation(num_items)[:count] + 1 for count in np.diff(offsets)]
    # A quarter of the gaps are below a second, and some are months: people rate whole pages at a time.
    gaps = np.floor(random.lognormal(1.5, 2.5, offsets[-1])).astype(np.int64)
    times = 956_703_932 + np.cumsum(gaps)
    return EventArrays(offsets, np.concatenate(items).astype(np.int32), times, num_items)
