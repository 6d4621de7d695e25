"""Computes bootstrap confidence intervals over samples, of metrics and of differences between two models.

Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13: percentile intervals. Each resample draws as
many samples as there are, with replacement. The numbers of samples of each class in a resample are multinomial, so they
are drawn instead of the samples: the distribution is the same, and the cost does not depend on the number of samples.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 10_000
SEED = 0
LEVEL = 0.95
"""Coverage of the intervals."""

CLASSES = 512
"""Classes that the values of `bootstrap_mean` are divided into."""

CHUNK = 1 << 22
"""Numbers drawn at once, which bounds the memory; sums depend on it in their last bits alone."""


class Interval(NamedTuple):
    """Value of a metric, and its confidence interval."""

    value: float
    low: float
    high: float


def bootstrap_means(count: NDArray[np.integer], values: Floats, resamples: int, seed: int) -> list[Interval]:
    """Return the mean over samples of each of M quantities, and its interval.

    Args:
        count: [C] number of samples of each class.
        values: [C, M] quantities of a sample of each class.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.
    """
    # Classes without samples are never drawn; dropping them makes the draws smaller.
    present = np.flatnonzero(count)
    count, values = count[present], values[present]
    samples = int(count.sum())
    means = np.concatenate([draw @ values for draw in _resample_counts(count, samples, resamples, seed)]) / samples
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    mean = count @ values / samples  # [M]
    return [Interval(*map(float, interval)) for interval in zip(mean, low, high, strict=True)]


def bootstrap_mean(values: Floats, resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """Return the mean of a quantity over samples, and its interval.

    The samples are divided into at most `CLASSES` classes of values in steps of equal size, and a resample has the mean
    of its class for each sample, so that the cost does not grow with the number of samples. The mean is exact. The
    interval lacks the spread within a class, whose variance is at most a quarter of the squared step.

    Args:
        values: [n] finite value of each sample; at least one.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.
    """
    distinct, classes = np.unique(values, return_inverse=True)
    if len(distinct) > CLASSES:
        step = (distinct[-1] - distinct[0]) / CLASSES
        classes = np.minimum((values - distinct[0]) / step, CLASSES - 1).astype(np.int64)
    count = np.bincount(classes)
    means = np.bincount(classes, weights=values) / np.maximum(count, 1)
    (interval,) = bootstrap_means(count, means[:, None], resamples, seed)
    return interval


def _resample_counts(
    count: NDArray[np.integer], samples: int, resamples: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of samples of each class, [resamples, C] in all, in parts."""
    generator, part = np.random.default_rng(seed), max(1, CHUNK // len(count))
    for begin in range(0, resamples, part):
        yield generator.multinomial(samples, count / samples, size=min(part, resamples - begin))
