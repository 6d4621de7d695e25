"""The recommender's LightningModule: SASRec and TiSASRec, each with or without hyper-connections."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.recommender.batch import RankingBatch, Scorer, TrainBatch
from engine.exact_mean import LossSum
from engine.examples import Example
from engine.exported import Exported
from engine.module import LockstepModule
from engine.sampling import Draw
from engine.shown_samples import ShownSamples
from lightning_modules.recommender.baselines import LastItemTransition, Popularity
from lightning_modules.recommender.card import described
from lightning_modules.recommender.checkpoint_identity import (
    architecture_identity,
    check_architecture,
    check_items,
    items_identity,
)
from lightning_modules.recommender.export import Recommender, export, graph_inputs
from lightning_modules.recommender.last_states import last_states
from lightning_modules.recommender.losses import LOSSES, LossName, cross_entropy
from lightning_modules.recommender.network import Attention, Norm, Residual, SequenceEncoder
from lightning_modules.recommender.ranking import RankingMetrics, candidate_ranks, ranks
from lightning_modules.recommender.shown_users import ShownUser, example, shown_user

_BASELINE_METRICS = ("hr@1", "hr@10", "ndcg@10", "mrr@10")


class SequentialRecommender(LockstepModule):
    """Predicts the next item of a sequence; evaluated by the rank of the held-out item among all items.

    Args:
        attention: `standard` (SASRec) or `time_interval` (TiSASRec: attention also sees how long ago events were).
        residual: `plain` or `mhc` (manifold-constrained hyper-connections, arXiv 2512.24880).
        norm: layer norm before (`pre`) or after (`post`) each sublayer.
        hidden_size: width C of the states.
        num_blocks: attention + feed-forward blocks.
        num_heads: attention heads.
        feed_forward_size: inner width of the feed-forward layers; null is `hidden_size`.
        dropout: share of activations dropped in training.
        time_span: largest time interval told apart, in units of the user's smallest gap (TiSASRec's T).
        streams: residual streams n of `mhc`.
        sinkhorn_iterations: normalisations that make the stream mixing doubly stochastic.
        tie_output: score items with their input embedding.
        activation_checkpointing: recompute activations in the backward pass: less memory, more time.
        loss: `cross_entropy` over all items, `sampled_softmax`, `bce` (the papers' one negative) or `gbce`; all but the first need `data.init_args.num_negatives`.
        gbce_calibration: t of `gbce`, from 0 (plain) to 1 (calibrated).
        remove_seen: take the items of a user's history out of the ranking.
        baselines: also evaluate popularity and last-item transition, once a run.
        top_k: recommendations that `predict` writes for a history.
        training: see LockstepModule.
    """  # noqa: E501

    encoder: SequenceEncoder
    shown_samples: ShownSamples[ShownUser]

    def __init__(
        self,
        attention: Attention = "standard",
        residual: Residual = "plain",
        norm: Norm = "pre",
        hidden_size: int = 64,
        num_blocks: int = 2,
        num_heads: int = 1,
        feed_forward_size: int | None = None,
        dropout: float = 0.2,
        time_span: int = 256,
        streams: int = 4,
        sinkhorn_iterations: int = 20,
        tie_output: bool = True,
        activation_checkpointing: bool = False,
        loss: LossName = "cross_entropy",
        gbce_calibration: float = 0.75,
        remove_seen: bool = True,
        baselines: bool = True,
        top_k: int = 10,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        self.architecture: dict[str, Any] = {
            "attention": attention,
            "residual": residual,
            "norm": norm,
            "hidden_size": hidden_size,
            "num_blocks": num_blocks,
            "num_heads": num_heads,
            "feed_forward_size": feed_forward_size,
            "dropout": dropout,
            "time_span": time_span,
            "streams": streams,
            "sinkhorn_iterations": sinkhorn_iterations,
            "tie_output": tie_output,
            "activation_checkpointing": activation_checkpointing,
        }
        self.loss_name, self.loss_options = loss, {"calibration": gbce_calibration} if loss == "gbce" else {}
        self.remove_seen, self.baselines, self.top_k = remove_seen, baselines, top_k
        self.metrics = torch.nn.ModuleDict()
        self._scorers: dict[str, Scorer] = {}
        self._baselines_done: set[str] = set()

    def setup(self, stage: str) -> None:
        self.terms_per_sample = self.data.catalog.max_length
        super().setup(stage)

    def configure_model(self) -> None:
        if not hasattr(self, "encoder"):
            catalog = self.data.catalog
            self.encoder = SequenceEncoder(catalog.num_items, catalog.max_length, **self.architecture)
            self._items = items_identity(catalog.item_ids)
            self._architecture = architecture_identity(self.architecture, catalog.max_length)

    def memory_savers(self) -> list[tuple[str, str]]:
        if self.architecture["activation_checkpointing"]:
            return []
        return [("--model.init_args.activation_checkpointing true", "a third more time")]

    # -- training ----------------------------------------------------------------------------------------------------

    def training_loss(self, batch: Sequence[TrainBatch]) -> LossSum:
        """Of a micro-batch in parts of similar length."""
        states = [self.encoder(part.history) for part in batch]
        total = self._total_loss(states, batch)
        real = torch.stack([(part.targets > 0).sum() for part in batch]).sum()
        positions = sum(part.targets.numel() for part in batch)
        self.log("train/real_positions", real.float() / positions, on_step=True, batch_size=1)
        if self.encoder.collect_diagnostics:
            self._log_hyper_connections()
        return LossSum(total, real)

    def _total_loss(self, states: list[Tensor], batch: Sequence[TrainBatch]) -> Tensor:
        weight = self.encoder.output_weight
        if self.loss_name == "cross_entropy":
            # One call: each would keep a gradient of the size of all items' vectors.
            targets = torch.cat([part.targets.flatten() for part in batch])
            return cross_entropy(torch.cat([part.flatten(0, 1) for part in states]), weight, targets)
        loss = LOSSES[self.loss_name]
        totals = [
            loss(part_states, weight, part.targets, part.negatives, **self.loss_options)
            for part_states, part in zip(states, batch, strict=True)
        ]
        return torch.stack(totals).sum()

    def on_train_batch_start(self, batch: Sequence[TrainBatch], batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        step = self.trainer.global_step + 1
        self.encoder.collect_diagnostics = step % self.trainer.log_every_n_steps == 0

    def _log_hyper_connections(self) -> None:
        """Of mHC: the composite gain of all mixings (near 1 is stable), how far the streams have grown apart (0 is
        collapsed), how far the mixings are from doubly stochastic, and how much is read from and written to a stream.

        They are means over the real positions of the micro-batch's last part, its longest rows, of the first process;
        over the connections `gain` and `sum_error` are the largest, the others means.
        """
        figures = self.encoder.diagnostics()
        largest, mean = torch.max, torch.mean
        kinds = {"gain": largest, "stream_spread": mean, "sum_error": largest, "pre": mean, "post": mean}
        for name, reduce in kinds.items():
            values = [value for key, value in figures.items() if key.startswith(name + "/")]
            if values:
                self.log(f"mhc/{name}", reduce(torch.stack(values)), on_step=True, batch_size=1)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._begin_evaluation("val")

    def validation_step(self, batch: RankingBatch, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        self._end_evaluation("val")

    def on_test_epoch_start(self) -> None:
        self._begin_evaluation("test")

    def test_step(self, batch: RankingBatch, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        self._end_evaluation("test")

    def _begin_evaluation(self, stage: str) -> None:
        self.metrics.clear()
        self.encoder.collect_diagnostics = False  # of training, whose every step says anew
        # Baselines do not change while the model trains: once a run is enough.
        wanted = self.baselines and not self.trainer.sanity_checking and stage not in self._baselines_done
        self._scorers = self._make_scorers() if wanted else {}
        if wanted:
            self._baselines_done.add(stage)

    def _make_scorers(self) -> dict[str, Scorer]:
        events, num_items = self.data.training_events, self.data.catalog.num_items
        return {
            "popularity": Popularity(*events, num_items).to(self.device).scores,
            "last-item-transition": LastItemTransition(*events, num_items).to(self.device).scores,
            **self.data.optima,
        }

    def _evaluate(self, batch: RankingBatch) -> None:
        scores = self.encoder.scores(last_states(self.encoder, batch.history))
        self._count("", scores, batch)
        self._keep_shown(scores, batch)
        for name, scorer in self._scorers.items():
            self._count(f"baseline/{name}/", scorer(batch.history), batch)

    def _keep_shown(self, scores: Tensor, batch: RankingBatch) -> None:
        if self.shown_samples.number:
            users = batch.users.tolist()
            for place in self.shown_samples.places(users):
                self.shown_samples.keep(users[place], shown_user(scores, batch, place, self.remove_seen))

    def examples(self) -> list[Callable[[], Example]]:
        """Users with their last items, the one that follows, and what is recommended instead."""
        return [partial(self._example, *found) for found in self.shown_samples.of_all_processes()]

    def _example(self, row: int, shown: ShownUser) -> Example:
        return example(self.data.user(row), shown, self.data.catalog.title)

    def _count(self, system: str, scores: Tensor, batch: RankingBatch) -> None:
        seen = batch.seen if self.remove_seen else None
        self._metric(system, "").update(ranks(scores, batch.target, seen))
        if batch.candidates.shape[1]:
            self._metric(system, "sampled_100").update(candidate_ranks(scores, batch.target, batch.candidates))

    def _metric(self, system: str, protocol: str) -> RankingMetrics:
        key = f"{system}|{protocol}".replace(".", " ")
        if key not in self.metrics:
            self.metrics[key] = RankingMetrics(protocol).to(self.device)
        return self.metrics[key]

    def _end_evaluation(self, stage: str) -> None:
        for key, metric in self.metrics.items():
            system = key.split("|")[0]
            figures = metric.compute()
            if system:
                figures = {name: value for name, value in figures.items() if name.split("/")[-1] in _BASELINE_METRICS}
            shown = stage == "val" and not system
            for name, value in figures.items():
                self.log(f"{stage}/{system}{name}", value.float(), prog_bar=shown and name == "ndcg@10", batch_size=1)

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict_step(self, batch: RankingBatch, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        scores = self.encoder.scores(last_states(self.encoder, batch.history))
        if self.remove_seen:
            scores.scatter_(1, batch.seen, -torch.inf)
        best = scores.topk(min(self.top_k, scores.shape[1] - 1))
        columns = (batch.users, batch.history.lengths, best.indices, best.values)
        answers = []
        for row, events, items, values in zip(*(column.tolist() for column in columns), strict=True):
            if row >= 0:
                recommendations = self._recommendations(items, values) if events else []
                answers.append((row, {**self.data.describe(row), "recommendations": recommendations}))
        return answers

    def _recommendations(self, items: list[int], scores: list[float]) -> list[dict[str, Any]]:
        catalog = self.data.catalog
        answers = []
        for item, score in zip(items, scores, strict=True):
            if score == -torch.inf:  # fewer items left than asked for
                break
            answer: dict[str, Any] = {"item": catalog.item_ids[item - 1], "score": round(score, 4)}
            if catalog.titles is not None:
                answer["title"] = catalog.titles[item - 1]
            answers.append(answer)
        return answers

    # -- other forms -------------------------------------------------------------------------------------------------

    def export(self, folder: Path, merge: bool) -> Exported:
        """Writes a graph for onnxruntime, and the weights."""
        if merge:
            raise ValueError("export --merge: a recommender has no language model that anything could be merged into")
        recommender = Recommender(self.encoder, self.architecture, self.data.catalog, self.top_k, self.remove_seen)
        histories = self._some_histories()
        checked = export(recommender, folder, histories)
        return described(recommender, list(graph_inputs(histories, recommender)), checked)

    def _some_histories(self) -> RankingBatch:
        """Of users from the whole validation set; fewer if there are millions of items to score."""
        self.data.setup("validate")
        users, number = len(self.data.validation_set), max(8, min(256, (1 << 25) // self.data.catalog.num_items))
        if not users:
            raise ValueError("export: the validation set is empty, so there is no history to compare the export with")
        return self.data.validation_set[Draw(0, np.linspace(0, users - 1, min(number, users)).astype(np.int64))]

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["items"], checkpoint["architecture"] = self._items, self._architecture

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        check_items(checkpoint.get("items"), self._items)
        check_architecture(checkpoint.get("architecture"), self._architecture)
        super().on_load_checkpoint(checkpoint)
