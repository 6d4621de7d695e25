"""Defines the ranking metrics (NDCG@k, HR@k, MRR@k) as functions of a rank.

A metric depends on a user's rank alone, and all ranks beyond the largest cutoff count the same. So whatever resamples
users can draw the number of users at each rank instead, which costs the same for a thousand and for ten million users.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.statistics.bootstrap import RESAMPLES, SEED, Floats, Interval, bootstrap_means
from engine.statistics.paired_test import ScoreTable


class RankMetric(NamedTuple):
    """A metric that is the mean over users of a gain, which depends on the rank of the user's only relevant item."""

    name: str
    """Name before the cutoff, `ndcg` of `ndcg@10`."""
    gain: Callable[[NDArray[np.integer]], Floats]
    """Maps ranks [n], from 1 to the cutoff, to gains [n]. Ranks beyond the cutoff have the gain 0."""
    baseline_cutoffs: tuple[int, ...] = (10,)
    """Cutoffs at which baselines are evaluated, some of those of the model."""


RANK_METRICS = (
    RankMetric("ndcg", lambda rank: 1 / np.log2(rank + 1)),
    RankMetric("hr", lambda rank: np.ones(len(rank)), baseline_cutoffs=(1, 10)),
    RankMetric("mrr", lambda rank: 1 / rank),
)
"""Metrics of every evaluation and report."""


def gains(cutoffs: Sequence[int]) -> ScoreTable:
    """Return the gains of RANK_METRICS at each cutoff.

    Row r - 1 of the values is rank r; the last row is every rank beyond the largest cutoff.
    """
    rank = np.arange(1, max(cutoffs) + 2)
    columns = {f"{metric.name}@{k}": metric.gain(rank) * (rank <= k) for metric in RANK_METRICS for k in cutoffs}
    return ScoreTable(tuple(columns), np.stack([*columns.values()], axis=1))


def rank_classes(rank: NDArray[np.integer], table: ScoreTable) -> NDArray[np.int64]:
    """Return the row of `table.values` of each rank: int64 [U]."""
    return np.minimum(rank.astype(np.int64), len(table.values)) - 1


def metric_intervals(
    rank: NDArray[np.integer], table: ScoreTable, resamples: int = RESAMPLES, seed: int = SEED
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
