"""Computes the ranks of held-out items, and ranking metrics of these ranks (NDCG, HR and MRR) at cutoffs.

The state of a metric is the number of users at each rank. Sums of integers do not depend on their order, so the metrics
are bit-identical for every world size.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.recommender.item_ranks.rank_metrics import RANK_METRICS
from lightning_modules.recommender.item_scores import Scores, ShardedScores, as_blocks, count_ahead


def ranks(scores: Scores, target: Tensor, seen: Tensor | None = None) -> Tensor:
    """Return the rank of each row's target among all items that the row has not seen; 1 is best.

    The rank is the number of items that do not score below the target. Ties and NaN therefore count against the model,
    and a model with constant or invalid scores ranks last.

    Args:
        scores: scores of all items.
        target: [B] int64, 0 for no target.
        seen: [B, S] int64 items to exclude, padded with 0, or None. The target is never excluded.

    Returns:
        [B] int64, from 1 to V; 0 in rows without a target.
    """
    scores = as_blocks(scores)
    if isinstance(scores, ShardedScores):
        return scores.count_ahead(target, seen) * (target > 0)
    # The target's score comes from the same product as those it is compared with: rounding cannot break a tie.
    return count_ahead(scores, scores.gather_items(target[:, None]), target, seen) * (target > 0)


def candidate_ranks(scores: Scores, target: Tensor, candidates: Tensor) -> Tensor:
    """Return the rank of each row's target among its candidates (protocol `sampled_100`); ties and NaN as in `ranks`.

    Args:
        scores: scores of all items.
        target: [B] int64, 0 for no target.
        candidates: [B, C] int64 items.

    Returns:
        [B] int64, from 1 to C + 1; 0 in rows without a target.
    """
    candidate_scores = as_blocks(scores).gather_items(torch.cat((target[:, None], candidates), 1))
    # `not <` and not `>=`, so that NaN counts as ahead.
    ahead = ~(candidate_scores[:, 1:] < candidate_scores[:, :1])
    return (ahead.sum(1) + 1) * (target > 0)


class RankingMetrics(Metric):
    """Means over users of RANK_METRICS at each cutoff. A user has one relevant item, the held-out item.

    Args:
        protocol: "" for full ranking. The name of a sampled protocol becomes a prefix (`sampled_100/hr@10`), so that
            its metrics are never confused with metrics of full ranking.
        cutoffs: the values of k.
    """

    full_state_update = False
    at_rank: Tensor
    count: Tensor

    def __init__(self, protocol: str = "", cutoffs: Sequence[int] = (1, 5, 10, 20)) -> None:
        super().__init__()
        self.prefix = f"{protocol}/" if protocol else ""
        self.cutoffs = tuple(cutoffs)
        self.add_state("at_rank", torch.zeros(max(cutoffs), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, ranks: Tensor) -> None:
        """Count `ranks`, [B] int64. Rank 0 (no target) does not count."""
        counted = torch.arange(1, len(self.at_rank) + 1, device=ranks.device)
        self.at_rank += (ranks[:, None] == counted).sum(0)
        self.count += (ranks > 0).sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics (`ndcg@10`, after the protocol's name), float64 scalars; NaN without a user."""
        # On the CPU, because some devices have no float64, and because the order of the additions is fixed there.
        at_rank, count = self.at_rank.cpu().double(), self.count.cpu().double()
        ranks = np.arange(1, len(at_rank) + 1)
        gains = {metric.name: torch.from_numpy(metric.gain(ranks)) for metric in RANK_METRICS}
        return {
            f"{self.prefix}{name}@{k}": (at_rank[:k] * gain[:k]).sum() / count
            for name, gain in gains.items()
            for k in self.cutoffs
        }
