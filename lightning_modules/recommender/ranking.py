"""Where the held-out item ranks, and what follows from it: HR, NDCG and MRR at cutoffs.

Everything is counted before anything is divided: a metric's state is the number of users at each rank. Integers add up
to the same sum in any order, so the figures are equal to the bit on any number of processes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


def ranks(scores: Tensor, target: Tensor, seen: Tensor | None = None) -> Tensor:
    """Rank of each row's target among all items that the row has not seen; 1 is best.

    Ties count against the model (the rank is the number of items that do not score below the target), and so does
    NaN: as another item's score it is ahead of the target, as the target's every item is ahead of it. A model that
    scores everything alike, or breaks, ranks last and not first.

    Args:
        scores: [B, V + 1]; column j is item j, column 0 is ignored.
        target: [B] int64, 0 where there is none.
        seen: [B, S] int64 items out of competition, padded with 0, or None. The target competes even if it is seen.

    Returns:
        int64 [B], from 1 to V; 0 in rows without a target.
    """
    ahead = ~(scores < scores.gather(1, target[:, None]))
    if seen is not None:
        ahead.scatter_(1, seen, False)
    ahead[:, 0] = False
    ahead.scatter_(1, target[:, None], True)
    return ahead.sum(1) * (target > 0)


def candidate_ranks(scores: Tensor, target: Tensor, candidates: Tensor) -> Tensor:
    """Rank of each row's target among itself and its candidates (the `sampled_100` protocol); ties and NaN as above.

    Args:
        scores: [B, V + 1]
        target: [B] int64, 0 where there is none.
        candidates: [B, C] int64

    Returns:
        int64 [B], from 1 to C + 1; 0 in rows without a target.
    """
    ahead = ~(scores.gather(1, candidates) < scores.gather(1, target[:, None]))
    return (ahead.sum(1) + 1) * (target > 0)


class RankingMetrics(Metric):
    """HR@k, NDCG@k and MRR@k of held-out items, one per user.

    With one relevant item at rank r: HR@k = [r <= k], NDCG@k = [r <= k] / log2(r + 1), MRR@k = [r <= k] / r.

    Args:
        protocol: "" for full ranking; a sampled protocol gives its name, and its figures carry it
            (``sampled_100/hr@10``), so that the two kinds of figures never share a name.
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
        """Count ``ranks``, int64 [B]; rank 0 (no target) does not count."""
        of_interest = torch.arange(1, len(self.at_rank) + 1, device=ranks.device)
        self.at_rank += (ranks[:, None] == of_interest).sum(0)
        self.count += (ranks > 0).sum()

    def compute(self) -> dict[str, Tensor]:
        """``hr@k``, ``ndcg@k``, ``mrr@k`` (after the protocol's name), float64 scalars; NaN if nothing was counted."""
        # On the CPU: some devices have no float64, and the order of 20 additions is the same everywhere there.
        at_rank, count = self.at_rank.cpu().double(), self.count.cpu().double()
        rank = torch.arange(1, len(at_rank) + 1, dtype=torch.float64)
        gains = {"hr": torch.ones_like(rank), "ndcg": 1 / torch.log2(rank + 1), "mrr": 1 / rank}
        return {
            f"{self.prefix}{name}@{k}": (at_rank[:k] * gain[:k]).sum() / count
            for name, gain in gains.items()
            for k in self.cutoffs
        }
