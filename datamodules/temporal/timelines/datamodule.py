"""Provides resource timelines with questions: the DataModule from curves to batches of chats."""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatExamples
from datamodules.multimodal.datamodule import ChatOptions
from datamodules.multimodal.predict_questions import questions_path
from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.batch import SeriesLayout, SeriesTokens
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.timelines.channels import CHANNELS
from datamodules.temporal.timelines.dataset import TimelineQuestions, Timelines
from datamodules.temporal.timelines.evaluation import TimelineEvaluation
from datamodules.temporal.timelines.recorded.dataset import RecordedTimelines
from datamodules.temporal.timelines.recorded.predict_questions import TimelinePredictDataset
from datamodules.temporal.timelines.reports.timeline_reports import report_training_data
from datamodules.temporal.timelines.sample_cache import MANIFEST, CachedTimelines, ShardRange, verify_cache
from datamodules.temporal.timelines.sample_cache_writer import write_cache
from datamodules.temporal.timelines.synthetic.curriculum import Curriculum
from datamodules.temporal.timelines.synthetic.synthetic_timelines import GENERATOR_VERSION, SyntheticTimelines
from engine.base_options import Unpack
from engine.export.artifacts import GENERATED, DatasetCard
from engine.number_check import check_numbers

log = logging.getLogger("lockstep")

_TEXTS = 1000
"""Samples whose texts the built-in tokenizer is trained on."""


class ResourceTimelines(TimelineEvaluation):
    """Curves of the available resources of a machine, and questions about them.

    Args:
        synthesis: settings of the curves and the questions.
        num_samples: samples per epoch.
        fresh_samples: draw new samples in every epoch instead of repeating the same samples.
        easy_epochs: epochs in which training samples reach the difficulty of `synthesis`: the first epoch has timelines
            of a quarter of the length, with the queried channel only. 0: constant difficulty.
        validation_size: questions of a validation; the model generates their answers.
        test_size: questions of a test.
        series_tokens: tokens of a series for the language model: `pooled` (one token), `patch` (one per patch of all
            channels), `channel_patch` (one per patch of each channel).
        patch_length: steps of a patch.
        timelines: recorded timelines for validation and test, not synthetic timelines: a .csv file (time_ms, then
            available resources), a folder of such files, or an .npz of pods. The questions follow `synthesis`.
        timelines_step_ms: duration of a step that .csv files with irregular times are resampled to; null refuses them.
        capacities: capacities of the machines in .csv files, {channel: number} in cores, GB and %; null for the
            smallest common capacity that covers the measurements.
        questions: JSONL file that `predict` answers; see datamodules/temporal/timelines/recorded/predict_questions.py.
        root: folder that `prepare` writes to.
        cached_epochs: epochs of training samples that `prepare` writes to `root`, besides validation and test samples,
            and that training reads from there; 0: samples are generated on demand, which is as fast.
        **batches: see MultimodalDataModule and LockstepDataModule.
    """

    train_set: ChatExamples
    marker = PLACEHOLDER

    def __init__(
        self,
        synthesis: SyntheticTimelines | None = None,
        num_samples: int = 10_000,
        fresh_samples: bool = True,
        easy_epochs: int = 0,
        validation_size: int = 300,
        test_size: int = 1000,
        series_tokens: SeriesTokens = "channel_patch",
        patch_length: int = 4,
        timelines: str | None = None,
        timelines_step_ms: int | None = None,
        capacities: dict[str, float] | None = None,
        questions: str | None = None,
        root: str = "data/temporal",
        cached_epochs: int = 0,
        **batches: Unpack[ChatOptions],
    ) -> None:
        super().__init__(**batches)
        self.synthesis = synthesis or SyntheticTimelines()
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        sizes = {"num_samples": num_samples, "validation_size": validation_size, "test_size": test_size}
        check_numbers("data.init_args.", sizes | {"patch_length": patch_length}, at_least=1)
        check_numbers("data.init_args.", {"easy_epochs": easy_epochs, "cached_epochs": cached_epochs}, at_least=0)
        if easy_epochs and (cached_epochs or not fresh_samples):
            raise ValueError(
                "data.init_args.easy_epochs draws new samples in every epoch, so it excludes cached_epochs and "
                "fresh_samples false"
            )
        check_numbers("data.init_args.", {"timelines_step_ms": timelines_step_ms}, at_least=1)
        self.fresh_samples, self.easy_epochs = fresh_samples, easy_epochs
        self.timelines_step_ms = timelines_step_ms
        self.timelines, self.capacities, self.questions_file = timelines, capacities, questions
        self.root, self.cached_epochs = root, cached_epochs
        self.layout = SeriesLayout(len(CHANNELS), series_tokens, patch_length)

    @override
    def dataset_card(self) -> DatasetCard:
        train, validation, test = self.sizes.values()
        real = f", on the timelines of {Path(self.timelines).name}" if self.timelines else ""
        content = (
            f"Timelines of machines' resources with questions about them: {train:,} samples an epoch; "
            f"{validation:,} to validate and {test:,} to test{real}."
        )
        terms = GENERATED + (" The real timelines are yours: state here on what terms." if self.timelines else "")
        return DatasetCard("Lockstep's synthetic timelines", content, terms)

    @override
    def prepare_data(self) -> None:
        """Verify the checksums of the cache, before the processes of this node read it."""
        predicts = self.trainer is not None and self.trainer.state.fn == "predict"
        if self.cached_epochs and not predicts and (self._cache / MANIFEST).is_file():
            verify_cache(self._cache)

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            timelines = Curriculum(self.synthesis, self.easy_epochs) if self.easy_epochs else self._synthetic
            self.train_set = self.examples(self._dataset(timelines, Split.TRAIN, self.fresh_samples))
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self._dataset(self._evaluation_timelines, Split.VALIDATION))
        if stage == "test":
            self.test_set = self.questions(self._dataset(self._evaluation_timelines, Split.TEST))
        if stage == "predict":
            path = questions_path(self.questions_file, "a JSONL file with a question on each line")
            questions = TimelinePredictDataset(path, self.layout, self.synthesis.series_position)
            self.predict_set = self.questions(questions, in_order=True)

    def _dataset(self, timelines: Timelines, split: Split, fresh: bool = False) -> TimelineQuestions:
        if isinstance(timelines, CachedTimelines):
            timelines.require(split, self.sizes[split], self._epochs_trained if fresh else 1)
        return TimelineQuestions(timelines, split, self.sizes[split], self.layout, fresh)

    @property
    def _epochs_trained(self) -> int:
        """Number of epochs of the training; 1 if something else ends it."""
        trainer = self.trainer
        if trainer is None or trainer.max_steps != -1:
            return 1
        overfit = trainer.overfit_batches  # type: ignore[attr-defined]  # set by Lightning outside of the class
        return 1 if overfit else max(1, trainer.max_epochs or 1)

    @property
    def _synthetic(self) -> SyntheticTimelines | CachedTimelines:
        return CachedTimelines(self._cache, self.synthesis) if self.cached_epochs else self.synthesis

    @property
    def _cache(self) -> Path:
        return Path(self.root) / "cache"

    @property
    def _evaluation_timelines(self) -> Timelines:
        if self.timelines is None:
            return self._synthetic
        recorded = RecordedTimelines(
            Path(self.timelines), self.synthesis, self.capacities, step_ms=self.timelines_step_ms
        )
        recorded.check()  # now, so an invalid file fails before training starts
        return recorded

    @override
    def texts(self) -> Iterator[str]:
        # Depends on the format only, so other questions and curves have the same tokens.
        synthesis = SyntheticTimelines(format=self.synthesis.format)
        for index in range(_TEXTS):
            sample = synthesis.sample(Split.TRAIN, 0, index)
            yield f"{sample.question}\n{sample.answer}"

    def _order_identity(self) -> dict[str, Any]:
        # On a resume within an epoch, the remaining samples must be the same.
        generator = [asdict(self.synthesis), self.easy_epochs, self.fresh_samples, GENERATOR_VERSION]
        name = hashlib.sha256(json.dumps(generator, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return {**super()._order_identity(), "timelines": name}

    # -- reports -----------------------------------------------------------------------------------------------------

    @override
    def prepare(self) -> None:
        """Check recorded timelines, write a report of the training data to `root`, and the cache if it is enabled."""
        if self.timelines is not None:
            self._evaluation_timelines  # noqa: B018  (checks the files)
        if self.cached_epochs:
            extents = {split: ShardRange(size) for split, size in self.sizes.items()}
            extents[Split.TRAIN] = ShardRange(self.sizes[Split.TRAIN], self.cached_epochs)
            write_cache(self._cache, self.synthesis, extents, progress=_log_progress)
        source = self._dataset(self.synthesis, Split.TRAIN)
        path = report_training_data(Path(self.root), source, self.synthesis, self._tokens)
        log.info("report: %s", path)

    def _tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text))


def _log_progress(done: int, total: int) -> None:
    log.info("%s of %s samples written", f"{done:,}", f"{total:,}")
