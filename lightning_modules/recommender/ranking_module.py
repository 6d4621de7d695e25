"""Uses a recommender: ranks of held-out items, previews of users, recommendations, and the export."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.recommender.batch import RankingBatch
from datamodules.recommender.interface import RecommenderData
from engine.distributed.collectives import all_gather_objects
from engine.export.artifacts import ExportedModel
from engine.module import LockstepModule
from engine.run_trainer import as_run_trainer
from engine.telemetry.sample_previews import PreviewReservoir, SamplePreview
from lightning_modules.recommender.baselines import Popularity
from lightning_modules.recommender.checkpoint_compatibility import ModelIdentity
from lightning_modules.recommender.evaluation import RankingEvaluation
from lightning_modules.recommender.export.export_files import export_files
from lightning_modules.recommender.export.onnx_export import Recommender
from lightning_modules.recommender.export.runtime import load_recommender
from lightning_modules.recommender.features.event_inputs import event_feature_sizes
from lightning_modules.recommender.features.exported_encoder import encoder_to_export
from lightning_modules.recommender.features.feature_encoder import FeatureEncoder
from lightning_modules.recommender.features.next_item_scores import NextItemScores
from lightning_modules.recommender.item_ranks.rank_collector import write_ranks
from lightning_modules.recommender.item_scores import Scores
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.recommendations import Recommendations
from lightning_modules.recommender.sample_previews import UserPreview, render_preview, user_preview


class RankingModule(LockstepModule[RecommenderData]):
    """Base of SequentialRecommender, which sets its attributes: ranks all items for the histories of a batch."""

    export_extra = "onnx"

    architecture: ArchitectureSettings
    """Settings of the encoder, without the features of events."""

    encoder: SequenceEncoder
    item_features: FeatureEncoder | None
    evaluation: RankingEvaluation
    next_item_scores: NextItemScores
    preview_reservoir: PreviewReservoir[UserPreview]

    remove_seen: bool
    save_ranks: bool
    top_k: int
    export_vectors: bool
    export_index: str | None

    _identity: ModelIdentity

    _loaded_step: int = 0
    """Optimizer steps of the checkpoint that was loaded last."""

    # -- evaluation --------------------------------------------------------------------------------------------------

    @override
    def on_validation_epoch_start(self) -> None:
        self.encoder.collect_diagnostics = False  # on_train_batch_start sets it for each step
        self.next_item_scores.forget()
        trainer = as_run_trainer(self.trainer)
        # A validation inside a training keeps no ranks, and fast_dev_run writes nothing.
        collect = self.save_ranks and trainer.state.fn in ("validate", "test") and not trainer.fast_dev_run
        self.evaluation.begin(self.evaluation_stage, self.data, self.device, trainer.sanity_checking, collect)

    @override
    def validation_step(self, batch: RankingBatch, batch_idx: int) -> None:
        scores = self.next_item_scores(batch.history, self.data.catalog.num_items)
        self.evaluation.update(scores, batch)
        self._keep_previews(scores, batch)

    @override
    def on_validation_epoch_end(self) -> None:
        self.next_item_scores.forget()
        for name, value in self.evaluation.compute():
            main = name == self.evaluation.main_metric and self.evaluation_stage == "val"
            self.log(f"{self.evaluation_stage}/{name}", value.float(), prog_bar=main, batch_size=1)
        if self.evaluation.collected:
            self._write_ranks(self.evaluation.collected.gather())

    def _write_ranks(self, gathered: NDArray[np.int64]) -> None:
        if self.trainer.is_global_zero:
            folder, protocol = Path(self.trainer.default_root_dir), self.evaluation.protocol
            write_ranks(folder, gathered, self.data, self.evaluation_stage, protocol, self._loaded_step)

    on_test_epoch_start, test_step = on_validation_epoch_start, validation_step
    on_test_epoch_end = on_validation_epoch_end

    def _keep_previews(self, scores: Scores, batch: RankingBatch) -> None:
        if self.preview_reservoir.number:
            users = batch.users.tolist()
            rows: list[int | None] = [*self.preview_reservoir.rows_to_keep(users)]
            if self.next_item_scores.is_sharded:  # each rank scores items for the users of all
                rows += [None] * (max(all_gather_objects(len(rows))) - len(rows))
            for row in rows:
                shown = user_preview(scores, batch, row or 0, self.remove_seen)
                if row is not None:
                    self.preview_reservoir.keep(users[row], shown)

    def sample_previews(self) -> list[Callable[[], SamplePreview]]:
        """Return previews of users: their last items, the next item and the recommendations."""
        return self.preview_reservoir.previews(self._example)

    def _example(self, row: int, preview: UserPreview) -> SamplePreview:
        return render_preview(self.data.user(row), preview, self.data.catalog.title)

    # -- prediction --------------------------------------------------------------------------------------------------

    @override
    def on_predict_epoch_start(self) -> None:
        self.next_item_scores.forget()

    @override
    def predict_step(self, batch: RankingBatch, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        scores = self.next_item_scores(batch.history)
        answers = self._recommendations.for_batch(scores, batch, self.remove_seen, self._popularity)
        return [(row, {**self.data.describe(row), **answer}) for row, answer in answers]

    @cached_property
    def _recommendations(self) -> Recommendations:
        return Recommendations(self.data.recommendable, self.top_k, self.data.excluded_items)

    def _popularity(self) -> list[int]:
        """Return the number of training events of each recommendable item, [num_items]."""
        popularity = Popularity(*self.data.training_events, self.data.recommendable.num_items)
        counts: list[int] = popularity.counts[1:].tolist()
        return counts

    # -- export ------------------------------------------------------------------------------------------------------

    def export(self, folder: Path, merge: bool) -> ExportedModel:
        """Write a graph for onnxruntime, the weights, and the vectors and index if they are wanted."""
        if merge:
            raise ValueError("export --merge: a recommender has no adapters to merge")
        recommender = Recommender(
            encoder=encoder_to_export(self.encoder, self.item_features, self._encoder_settings),
            architecture=self._encoder_settings,
            catalog=self.data.recommendable,
            top_k=self.top_k,
            remove_seen=self.remove_seen,
            popularity=self._popularity(),
            feature_columns=self._identity.features.columns if self._identity.features else None,
            num_cold_items=self.data.recommendable.num_items - self.data.catalog.num_items,
            event_features=self.data.event_features,
        )
        return export_files(recommender, folder, self.data, self.export_vectors, self.export_index)

    @override
    def load_export(self, folder: Path) -> None:
        exported, catalog = load_recommender(folder), self.data.recommendable
        if exported.item_ids != list(map(str, catalog.item_ids)):
            raise ValueError(
                f"{folder}: found an export of {len(exported.item_ids):,} items, expected the {catalog.num_items:,} of "
                "the data; give an export of this run"
            )
        self.encoder, self.item_features = exported.encoder, None  # its item vectors include the features
        self.next_item_scores = NextItemScores(self.encoder, None)

    @property
    def _encoder_settings(self) -> ArchitectureSettings:
        """Settings of the encoder, with the sizes of the features of events if there are any."""
        return replace(self.architecture, event_features=event_feature_sizes(self.data.event_features))
