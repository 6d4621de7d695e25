"""Computes bootstrap confidence intervals over users, of metrics and of differences between two models.

Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13: percentile intervals. Each resample draws as
many users as there are, with replacement. The numbers of users of each kind in a resample are multinomial, so they are
drawn instead of the users: the distribution is the same.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.recommender.item_ranks.rank_metrics import Floats, Gains, rank_classes

RESAMPLES = 10_000
SEED = 0
LEVEL = 0.95
"""Coverage of the intervals."""

_CHUNK = 1 << 22  # numbers drawn at once, which bounds the memory; sums depend on it in their last bits alone


class Interval(NamedTuple):
    """Value of a metric, and its confidence interval."""

    value: float
    low: float
    high: float


def metric_intervals(
    rank: NDArray[np.integer], table: Gains, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, Interval]:
    """Return the mean of each metric over users and its 95 % interval.

    Args:
        rank: [U] ranks, from 1; at least one.
        table: metrics.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.
    """
    count = np.bincount(rank_classes(rank, table), minlength=len(table.values))
    return dict(zip(table.names, bootstrap_means(count, table.values, resamples, seed), strict=True))


def bootstrap_means(count: NDArray[np.integer], values: Floats, resamples: int, seed: int) -> list[Interval]:
    """Return the mean over users of each of M quantities, and its interval.

    Args:
        count: [C] number of users of each kind.
        values: [C, M] quantities of a user of each kind.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.
    """
    # Kinds without users are never drawn; dropping them makes the draws smaller.
    present = np.flatnonzero(count)
    count, values = count[present], values[present]
    users = int(count.sum())
    means = np.concatenate([draw @ values for draw in _resample_counts(count, users, resamples, seed)]) / users
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    mean = count @ values / users  # [M]
    return [Interval(*map(float, interval)) for interval in zip(mean, low, high, strict=True)]


def _resample_counts(count: NDArray[np.integer], users: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of users of each kind, [resamples, C] in all, in parts."""
    generator, part = np.random.default_rng(seed), max(1, _CHUNK // len(count))
    for begin in range(0, resamples, part):
        yield generator.multinomial(users, count / users, size=min(part, resamples - begin))
