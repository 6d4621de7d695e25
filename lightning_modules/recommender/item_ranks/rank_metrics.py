"""Computes HR@k, NDCG@k and MRR@k as functions of a rank, and counts the users at each rank.

A metric depends on a user's rank alone, and all ranks beyond the largest cutoff count the same. So whatever resamples
users can draw the number of users at each rank instead, which costs the same for a thousand and for ten million users.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.statistics.bootstrap import RESAMPLES, SEED, Floats, Interval, bootstrap_means
from engine.statistics.paired_test import ScoreTable


def gain_of_rank(rank: NDArray[np.integer]) -> dict[str, Floats]:
    """Return what a relevant item at each rank r adds to a metric: NDCG 1 / log2(r + 1), HR 1 and MRR 1 / r.

    Args:
        rank: [n], from 1.

    Returns:
        {metric: [n]}
    """
    return {"ndcg": 1 / np.log2(rank + 1), "hr": np.ones(len(rank)), "mrr": 1 / rank}


def gains(cutoffs: Sequence[int]) -> ScoreTable:
    """Return NDCG@k, HR@k and MRR@k: `gain_of_rank` if r <= k, else 0.

    Row r - 1 of the values is rank r; the last row is every rank beyond the largest cutoff.
    """
    rank = np.arange(1, max(cutoffs) + 2)
    columns = {f"{name}@{k}": gain * (rank <= k) for name, gain in gain_of_rank(rank).items() for k in cutoffs}
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
