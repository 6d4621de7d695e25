"""Computes beyond-accuracy metrics of the recommended items: coverage, novelty and popularity.

The state is how often each item is recommended. Sums of integers do not depend on their order, so the metrics are
bit-identical for every world size.
"""

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.recommender.item_scores import Scores, best_items


def recommended_items(scores: Scores, number: int, seen: Tensor | None) -> Tensor:
    """Return the best items of each row, the best first: [B, min(number, V)] int64; 0 where fewer are left.

    Args:
        scores: scores of all items. Not modified.
        number: number of items.
        seen: [B, S] int64 items to exclude, padded with 0, or None.
    """
    items, values = best_items(scores, number, seen)
    return items.masked_fill(values == -torch.inf, 0)  # fewer are left if nearly all items are seen


class BeyondAccuracyMetrics(Metric):
    """Coverage@k, novelty@k and popularity@k of the top k items of each user.

    - `coverage@k`: share of the catalog that is recommended to at least one user (catalog coverage; Herlocker et
      al., Evaluating Collaborative Filtering Recommender Systems, TOIS 2004, section 4.3).
    - `novelty@k`: mean self-information -log2 p of a recommended item, in bits, with p its share of all training events
      (Vargas and Castells, Rank and Relevance in Novelty and Diversity Metrics for Recommender Systems, RecSys 2011).
      An item without a training event counts as an item with a single event.
    - `popularity@k`: mean number of training events of a recommended item.

    Args:
        protocol: begins the names of the metrics, see `RankingMetrics`.
        k: number of recommended items of a user.
        training_events: [num_items + 1] int64 number of training events of each item; entry 0 is ignored.
    """

    full_state_update = False
    recommended: Tensor

    def __init__(self, protocol: str, k: int, training_events: Tensor) -> None:
        super().__init__()
        self.prefix, self.k = f"{protocol}/" if protocol else "", k
        self._training_events = training_events.cpu()
        self.add_state("recommended", torch.zeros(len(training_events), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, items: Tensor, users: Tensor) -> None:
        """Count the recommendations of a batch.

        Args:
            items: [B, k] int64 from `recommended_items`.
            users: [B] int64; rows with -1 do not count.
        """
        items = items[(items > 0) & (users >= 0)[:, None]]
        self.recommended += torch.bincount(items, minlength=len(self.recommended))

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics, float64 scalars; novelty and popularity are NaN without a recommendation."""
        # On the CPU, because some devices have no float64, and because the order of the additions is fixed there.
        recommended, events = self.recommended.cpu()[1:], self._training_events[1:].double()
        # A share of 0 would have an infinite self-information.
        share = events.clamp(min=1) / events.sum()
        number, weights = recommended.sum(), recommended.double()
        values = {
            "coverage": (recommended > 0).double().mean(),
            "novelty": (weights * -share.log2()).sum() / number,
            "popularity": (weights * events).sum() / number,
        }
        return {f"{self.prefix}{name}@{self.k}": value for name, value in values.items()}
