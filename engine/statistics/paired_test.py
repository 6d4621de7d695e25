"""Tests on the same samples whether one model is better than another.

The difference of a metric has a paired bootstrap interval over samples. Its p-value is from a two-sided sign-flip
permutation test (Fisher's randomization test for pairs; Smucker, Allan and Carterette, CIKM 2007, compare it with other
tests of retrieval systems): if the models are equal, the two results on a sample are as likely to be exchanged.
"""

from collections.abc import Sequence
from math import exp, fsum, lgamma, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.statistics.bootstrap import CHUNK, RESAMPLES, SEED, Floats, Interval, bootstrap_means

SIGNIFICANT = 0.05
"""p-value below which a difference is significant."""

_ROUNDING = 1e-9
"""Relative difference of two sums of equal numbers in another order, with a margin."""


class ScoreTable(NamedTuple):
    """Values of M metrics for a sample of each of C classes: the results that a model can have on a sample."""

    names: tuple[str, ...]  # [M]
    values: Floats  # [C, M]


class Difference(NamedTuple):
    """Difference of a metric between two models, b minus a."""

    metric: str
    a: float
    b: float
    interval: Interval
    p: float

    @property
    def is_significant(self) -> bool:
        """Whether the p-value is below 0.05."""
        return self.p < SIGNIFICANT


def compare_classes(
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    table: ScoreTable,
    exact: bool = False,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Difference]:
    """Compare two models by what they reached on the same samples.

    Args:
        a: [N] row of `table.values` of each sample by one model; at least one.
        b: [N] the same by the other model.
        table: metrics.
        exact: whether all values are 0 or 1, and the p-value is from the exact test of McNemar (1947): of the
            samples on which one model alone is right, each is as likely to be right as the other. That is the exact
            distribution of the sign-flip test.
        resamples: number of bootstrap resamples and of permutations.
        seed: seed of both.
    """
    size = len(table.values)
    # Samples with the same two rows are counted together: at most size**2 kinds, however many samples there are.
    pairs, count = np.unique(a * size + b, return_counts=True)
    first, second = np.divmod(pairs, size)
    difference = table.values[second] - table.values[first]
    intervals = bootstrap_means(count, difference, resamples, seed)
    if exact:
        better, worse = ((count @ (difference == sign)).astype(int).tolist() for sign in (1, -1))
        p_values = [mcnemar(*discordant) for discordant in zip(better, worse, strict=True)]
    else:
        p_values = _sign_flip(first, second, count, table.values, resamples, seed)
    means = [(count @ table.values[classes]) / len(a) for classes in (first, second)]
    rows = zip(table.names, means[0].tolist(), means[1].tolist(), intervals, p_values, strict=True)
    return [Difference(*row) for row in rows]


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided exact p-value of McNemar's test.

    Args:
        better: number of samples on which the second model alone is right.
        worse: number of samples on which the first model alone is right.
    """
    number = better + worse
    # Binomial tail in logarithms: 2**-n and n! leave the range of a float from about 1000 and 170 on.
    logs = (
        lgamma(number + 1) - lgamma(k + 1) - lgamma(number - k + 1) - number * log(2)
        for k in range(min(better, worse) + 1)
    )
    return min(1.0, 2 * fsum(map(exp, logs)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several comparisons, adjusted to control the chance of any false positive.

    Source: Holm, A simple sequentially rejective multiple test procedure (1979).
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        # The running maximum keeps the adjusted p-values in the order of the p-values.
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _sign_flip(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    count: NDArray[np.integer],
    values: Floats,
    resamples: int,
    seed: int,
) -> list[float]:
    """Return the p-value of each metric, (1 + hits) / (1 + permutations) as in Phipson and Smyth (2010).

    A permutation exchanges the results on each sample with probability 1/2. Of n samples with the same two results, the
    number of those that it exchanges is binomial, so this number is drawn instead of n signs.
    """
    unordered, group = np.unique(np.stack([np.minimum(first, second), np.maximum(first, second)]), axis=1,
                                 return_inverse=True)  # fmt: skip
    group = group.reshape(-1)  # numpy 2.0 returns another shape
    low, high = unordered
    samples = np.bincount(group, weights=count).astype(np.int64)
    step = values[high] - values[low]  # [G, M]
    # Samples of each kind whose difference has the sign of `step`; the others have the opposite sign.
    ascending = np.bincount(group, weights=count * (first < second), minlength=len(samples))
    observed = np.abs((2 * ascending - samples) @ step)
    # A permutation that equals the observed one must count as a hit although its sum is rounded otherwise.
    limit = observed - _ROUNDING * (samples @ np.abs(step))
    # The second entry of the seed makes these draws independent of the bootstrap's, which has the same seed.
    generator = np.random.default_rng([seed, 1])
    part, hits = max(1, CHUNK // len(samples)), np.zeros(len(observed), int)
    for begin in range(0, resamples, part):
        drawn = generator.binomial(samples, 0.5, size=(min(part, resamples - begin), len(samples)))
        hits += (np.abs((2 * drawn - samples) @ step) >= limit).sum(0)
    return [float(p) for p in (1 + hits) / (1 + resamples)]
