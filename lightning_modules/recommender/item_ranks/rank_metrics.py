"""Computes HR@k, NDCG@k and MRR@k as functions of a rank, and counts the users at each rank.

A metric depends on a user's rank alone, and all ranks beyond the largest cutoff count the same. So whatever resamples
users can draw the number of users at each rank instead, which costs the same for a thousand and for ten million users.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Gains(NamedTuple):
    """Values of M metrics for a user at each rank."""

    names: tuple[str, ...]  # [M]
    values: Floats  # [K + 1, M]; row r - 1 is rank r, the last row is every rank beyond the largest cutoff K


def gain_of_rank(rank: NDArray[np.integer]) -> dict[str, Floats]:
    """Return what a relevant item at each rank r adds to a metric: NDCG 1 / log2(r + 1), HR 1 and MRR 1 / r.

    Args:
        rank: [n], from 1.

    Returns:
        {metric: [n]}
    """
    return {"ndcg": 1 / np.log2(rank + 1), "hr": np.ones(len(rank)), "mrr": 1 / rank}


def gains(cutoffs: Sequence[int]) -> Gains:
    """Return NDCG@k, HR@k and MRR@k: `gain_of_rank` if r <= k, else 0."""
    rank = np.arange(1, max(cutoffs) + 2)
    columns = {f"{name}@{k}": gain * (rank <= k) for name, gain in gain_of_rank(rank).items() for k in cutoffs}
    return Gains(tuple(columns), np.stack([*columns.values()], axis=1))


def rank_classes(rank: NDArray[np.integer], table: Gains) -> NDArray[np.int64]:
    """Return the row of `table.values` of each rank: int64 [U]."""
    return np.minimum(rank.astype(np.int64), len(table.values)) - 1
