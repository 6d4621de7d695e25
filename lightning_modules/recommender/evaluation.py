"""Evaluates a recommender: ranks of held-out items by the network and, once per run, by the baselines."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from datamodules.recommender.batch import History, RankingBatch, Scorer
from datamodules.recommender.interface import RecommenderData
from lightning_modules.recommender.baselines import LastItemTransition, Popularity
from lightning_modules.recommender.beyond_accuracy import BeyondAccuracyMetrics, recommended_items
from lightning_modules.recommender.item_ranks.rank_collector import RankCollector
from lightning_modules.recommender.item_ranks.rank_metrics import RANK_METRICS
from lightning_modules.recommender.item_scores import BLOCK_BYTES, Scores
from lightning_modules.recommender.item_to_item import EASE, ItemBaselines, ItemKNN
from lightning_modules.recommender.ranking_metrics import RankingMetrics, candidate_ranks, ranks

log = logging.getLogger("lockstep")

Baseline = Literal["popularity", "last-item-transition", "item-knn", "ease"]

_DEFAULT: tuple[Baseline, ...] = ("popularity", "last-item-transition")
_PAIRWISE_BASELINES: tuple[Baseline, ...] = ("item-knn", "ease")
_BASELINE_METRICS = {f"{metric.name}@{k}" for metric in RANK_METRICS for k in metric.baseline_cutoffs}

REQUEST_TIME = "request_time"
"""Protocol in which the time of the target is known. The metrics of model and baselines have this prefix."""


class RankingEvaluation:
    """Computes the ranking metrics of each validation and test.

    Args:
        remove_seen: exclude the items of a user's history from the ranking.
        baselines: names of the baselines that are evaluated, too, with the data's optimal scorers; True for popularity
            and last-item transition, False or no name for none.
        item_baselines: settings of `item-knn` and `ease`.
        protocol: name of what the network is given, which begins the names of all metrics; "" for the past alone.
        beyond_accuracy: number of recommended items of a user for coverage, novelty and popularity; 0 for none of them.
    """

    def __init__(
        self,
        remove_seen: bool,
        baselines: bool | Sequence[Baseline],
        item_baselines: ItemBaselines | None = None,
        protocol: str = "",
        beyond_accuracy: int = 0,
    ) -> None:
        self.remove_seen, self.protocol = remove_seen, protocol
        self.baselines = (_DEFAULT if baselines else ()) if isinstance(baselines, bool) else tuple(baselines)
        self.item_baselines = item_baselines or ItemBaselines()
        self._metrics: dict[tuple[str, str], RankingMetrics] = {}  # by prefix of the name and protocol
        self._scorers: dict[str, Scorer] = {}
        self._baselines_done: set[str] = set()
        self._beyond_accuracy = beyond_accuracy
        self._recommended: BeyondAccuracyMetrics | None = None
        self._training_counts: Tensor | None = None
        self._num_items = 1
        self.collected: RankCollector | None = None
        """Rank of each user in the current evaluation; None unless `begin` is asked for it."""

    @property
    def main_metric(self) -> str:
        """Name of the metric that stands for the others."""
        return f"{self.protocol}/ndcg@10" if self.protocol else "ndcg@10"

    def begin(
        self, stage: str, data: RecommenderData, device: torch.device, sanity_checking: bool, collect: bool = False
    ) -> None:
        """Begin an evaluation.

        Args:
            stage: `val` or `test`.
            data: items and training events, for the baselines.
            device: device of the scores.
            sanity_checking: whether this is Lightning's check before the training, which needs no baselines.
            collect: keep the rank of each user in `collected`.
        """
        # New metrics for each evaluation: nothing of the previous evaluation is counted.
        self._metrics, self._scorers = {}, {}
        self._num_items = data.catalog.num_items
        kept = min(self._beyond_accuracy, self._num_items)  # recommended items of a user
        self.collected = RankCollector(self._num_items, self.remove_seen, device, kept) if collect else None
        self._recommended = self._recommended_items(data).to(device) if self._beyond_accuracy else None
        # Baselines do not change while the model trains, so they are evaluated once per run.
        if self.baselines and not sanity_checking and stage not in self._baselines_done:
            self._baselines_done.add(stage)
            self._scorers = {**_fit_scorers(self.baselines, self.item_baselines, data, device), **data.optima}

    def _recommended_items(self, data: RecommenderData) -> BeyondAccuracyMetrics:
        if self._training_counts is None:
            self._training_counts = Popularity(*data.training_events, data.catalog.num_items).counts
        return BeyondAccuracyMetrics(self.protocol, self._beyond_accuracy, self._training_counts)

    def update(self, scores: Scores, batch: RankingBatch) -> None:
        """Count the ranks of a batch.

        Args:
            scores: scores of all items by the network.
            batch: the histories and their held-out items.
        """
        all_item_ranks = self._count("", scores, batch)
        recommended = None
        if self._recommended:
            recommended = recommended_items(scores, self._recommended.k, batch.seen if self.remove_seen else None)
            self._recommended.update(recommended, batch.users)
        if self.collected:
            self.collected.add(all_item_ranks, batch, recommended)
        for name, scorer in self._scorers.items():
            # Baselines score all items at once, so they get as many users as fit the memory of a block.
            for part in _split_batch(batch, max(1, BLOCK_BYTES // (8 * self._num_items))):
                self._count(f"baseline/{name}/", scorer(part.history), part)

    def _count(self, prefix: str, scores: Scores, batch: RankingBatch) -> Tensor:
        """Count the ranks, and return those among all items."""
        all_item_ranks = ranks(scores, batch.target, batch.seen if self.remove_seen else None)
        self._metric(prefix, "", all_item_ranks.device).update(all_item_ranks)
        # Metrics of sampled candidates may rank models differently (Krichene and Rendle, "On Sampled Metrics for Item
        # Recommendation", KDD 2020), so they have names of their own.
        if batch.candidates.shape[1]:
            sampled = candidate_ranks(scores, batch.target, batch.candidates)
            self._metric(prefix, "sampled_100", all_item_ranks.device).update(sampled)
        return all_item_ranks

    def _metric(self, prefix: str, protocol: str, device: torch.device) -> RankingMetrics:
        if (prefix, protocol) not in self._metrics:
            name = "/".join(filter(None, (self.protocol, protocol)))
            # Made at first use, because which baselines and protocols there are depends on the data.
            self._metrics[prefix, protocol] = RankingMetrics(name).to(device)
        return self._metrics[prefix, protocol]

    def compute(self) -> Iterator[tuple[str, Tensor]]:
        """Yield name and value of each metric over all ranks: scalars in float64; of the baselines only a few."""
        for (prefix, _), metric in self._metrics.items():
            for name, value in metric.compute().items():
                if not prefix or name.split("/")[-1] in _BASELINE_METRICS:
                    yield prefix + name, value
        if self._recommended:
            yield from self._recommended.compute().items()


def _split_batch(batch: RankingBatch, size: int) -> Iterator[RankingBatch]:
    """Yield the rows of a batch in parts of at most `size` users."""
    for start in range(0, len(batch.users), size):
        rows = slice(start, start + size)
        columns = (None if column is None else column[rows] for column in batch.history)
        yield RankingBatch(History(*columns), *(column[rows] for column in batch[1:]))  # type: ignore[arg-type]  # `at`


def _fit_scorers(
    names: Sequence[Baseline], settings: ItemBaselines, data: RecommenderData, device: torch.device
) -> dict[str, Scorer]:
    """Return {name: scorer} of the baselines, without those that the number of items is too large for."""
    events, num_items, last = data.training_events, data.catalog.num_items, settings.last_events
    # Functions, so that only the chosen baselines are fitted: EASE takes a cube of the number of items.
    make: dict[Baseline, Callable[[], Popularity | LastItemTransition | ItemKNN | EASE]] = {
        "popularity": lambda: Popularity(*events, num_items),
        "last-item-transition": lambda: LastItemTransition(*events, num_items),
        "item-knn": lambda: ItemKNN(events, num_items, settings.neighbours, last),
        "ease": lambda: EASE(events, num_items, settings.l2, last),
    }
    skipped = [name for name in names if name in _PAIRWISE_BASELINES and num_items > settings.max_items]
    if skipped:
        log.warning(
            "baselines %s are skipped: found %d items, expected at most model.init_args.item_baselines.max_items %d",
            " and ".join(skipped), num_items, settings.max_items,
        )  # fmt: skip
    return {name: make[name]().to(device).scores for name in names if name not in skipped}
