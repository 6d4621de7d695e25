"""Resource timelines with questions about them: from curves to batches of chats."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datamodules.multimodal.datamodule import MultimodalDataModule
from datamodules.temporal.asked import AskedTimelines
from datamodules.temporal.batch import SeriesLayout, SeriesTokens
from datamodules.temporal.cache import CachedTimelines, Extent, write_cache
from datamodules.temporal.channels import CHANNELS, Format
from datamodules.temporal.curriculum import Curriculum
from datamodules.temporal.facts import Task
from datamodules.temporal.grading import OUTCOMES, grade
from datamodules.temporal.picture import draw
from datamodules.temporal.records import answer_figures, answer_record, question_record
from datamodules.temporal.report import write_data_report, write_prediction_report
from datamodules.temporal.samples import GENERATOR_VERSION, PLACEHOLDER, Split, Synthesis
from datamodules.temporal.source import TimelineQuestions, Timelines
from datamodules.temporal.timelines import RecordedTimelines
from engine.examples import Example
from engine.exported import GENERATED, DataDescription
from engine.pictures import png

log = logging.getLogger("lockstep")

_TEXTS = 1000
"""Samples whose texts the built-in tokenizer is made from."""

_REPORTED = 5000
"""Samples that the data report looks at."""


class ResourceTimelines(MultimodalDataModule):
    """Curves of the resources that are free on a machine, and questions about them.

    Args:
        synthesis: what the curves and the questions are like.
        num_samples: samples of an epoch.
        fresh_samples: other samples in every epoch instead of the same ones again.
        easy_epochs: epochs in which training samples get as hard as `synthesis` says: the first has timelines of a quarter of the length, of the asked channel alone. 0: all are alike.
        validation_size: questions of a validation; their answers are written word by word.
        test_size: questions of a test.
        series_tokens: what a series becomes for the language model: `pooled` (one token), `patch` (one for each patch of all channels), `channel_patch` (one for each patch of each channel).
        patch_length: steps of a patch.
        timelines: real timelines to validate and test with instead of synthetic ones: a .csv file (time_ms, then available resources), a folder of such, or an .npz of pods. The questions are asked as `synthesis` says.
        capacities: of the .csv files' machines, {channel: number} in cores, GB and %; null for the smallest that is sold and has what was measured.
        questions: JSONL file that `predict` answers; see datamodules/temporal/asked.py.
        root: folder for what `prepare` writes.
        cached_epochs: epochs of training samples that `prepare` writes to `root` and training reads from there, with the validation's and the test's; 0: samples are made as they are needed, which is as fast.
        batches: see MultimodalDataModule and LockstepDataModule.
    """  # noqa: E501

    marker = PLACEHOLDER
    outcomes = OUTCOMES
    kinds = tuple(task.value for task in Task)
    baselines = ("rules",)

    def __init__(
        self,
        synthesis: Synthesis | None = None,
        num_samples: int = 10_000,
        fresh_samples: bool = True,
        easy_epochs: int = 0,
        validation_size: int = 300,
        test_size: int = 1000,
        series_tokens: SeriesTokens = "channel_patch",
        patch_length: int = 4,
        timelines: str | None = None,
        capacities: dict[str, float] | None = None,
        questions: str | None = None,
        root: str = "data/temporal",
        cached_epochs: int = 0,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self.synthesis = synthesis or Synthesis()
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        for name, size in zip(("num_samples", "validation_size", "test_size"), self.sizes.values(), strict=True):
            if size < 1:
                raise ValueError(f"data.init_args.{name} must be at least 1, got {size}")
        for name, count in (("easy_epochs", easy_epochs), ("cached_epochs", cached_epochs)):
            if count < 0:
                raise ValueError(f"data.init_args.{name} is a number of epochs, 0 for none; got {count}")
        if patch_length < 1:
            raise ValueError(f"data.init_args.patch_length is a number of steps, at least 1; got {patch_length}")
        if easy_epochs and (cached_epochs or not fresh_samples):
            raise ValueError(
                "data.init_args.easy_epochs makes other samples in every epoch: not with cached_epochs, and not with "
                "fresh_samples false"
            )
        self.fresh_samples, self.easy_epochs = fresh_samples, easy_epochs
        self.timelines, self.capacities, self.questions_file = timelines, capacities, questions
        self.root, self.cached_epochs = root, cached_epochs
        self.layout = SeriesLayout(len(CHANNELS), series_tokens, patch_length)

    def description(self) -> DataDescription:
        train, validation, test = self.sizes.values()
        real = f", on the timelines of {Path(self.timelines).name}" if self.timelines else ""
        content = (
            f"Timelines of machines' resources with questions about them: {train:,} samples an epoch; "
            f"{validation:,} to validate and {test:,} to test{real}."
        )
        terms = GENERATED + (" The real timelines are yours: state here on what terms." if self.timelines else "")
        return DataDescription("Lockstep's synthetic timelines", content, terms)

    def setup(self, stage: str) -> None:
        if stage == "fit":
            timelines = Curriculum(self.synthesis, self.easy_epochs) if self.easy_epochs else self._synthetic
            self.train_set = self.examples(self._asked_of(timelines, Split.TRAIN, self.fresh_samples))
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self._asked_of(self._evaluated_with, Split.VALIDATION))
        if stage == "test":
            self.test_set = self.questions(self._asked_of(self._evaluated_with, Split.TEST))
        if stage == "predict":
            if self.questions_file is None:
                raise ValueError("predict needs data.init_args.questions, a JSONL file with a question on each line")
            position = self.synthesis.series_position
            asked = AskedTimelines(Path(self.questions_file), self.layout, position)
            self.predict_set = self.questions(asked, in_order=True)

    def _asked_of(self, timelines: Timelines, split: Split, fresh: bool = False) -> TimelineQuestions:
        if isinstance(timelines, CachedTimelines):
            timelines.require(split, self.sizes[split], self._epochs_trained if fresh else 1)
        return TimelineQuestions(timelines, split, self.sizes[split], self.layout, fresh)

    @property
    def _epochs_trained(self) -> int:
        """Epochs that the training asks for; 1 where something else ends it."""
        trainer = self.trainer
        known = trainer is not None and trainer.max_steps == -1 and not trainer.overfit_batches
        return max(1, trainer.max_epochs or 1) if known else 1

    @property
    def _synthetic(self) -> Synthesis | CachedTimelines:
        return CachedTimelines(self._cache, self.synthesis) if self.cached_epochs else self.synthesis

    @property
    def _cache(self) -> Path:
        return Path(self.root) / "cache"

    @property
    def _evaluated_with(self) -> Timelines:
        if self.timelines is None:
            return self._synthetic
        recorded = RecordedTimelines(Path(self.timelines), self.synthesis, self.capacities)
        recorded.recordings  # noqa: B018  (a wrong file is said now, and not by a loader in the middle of a training)
        return recorded

    def texts(self) -> Iterator[str]:
        # Of the format alone: whoever asks other questions, of other curves, has the same tokens.
        synthesis = Synthesis(format=self.synthesis.format)
        for index in range(_TEXTS):
            sample = synthesis.sample(Split.TRAIN, 0, index)
            yield f"{sample.question}\n{sample.answer}"

    def _what_is_ordered(self) -> dict[str, Any]:
        # In the middle of an epoch the samples that are left must be those that were left.
        made_by = [asdict(self.synthesis), self.easy_epochs, self.fresh_samples, GENERATOR_VERSION]
        name = hashlib.sha256(json.dumps(made_by, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return {**super()._what_is_ordered(), "timelines": name}

    # -- answers -----------------------------------------------------------------------------------------------------

    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        source = self.evaluated
        return grade(source.sample(0, sample).facts, text, source.timelines.notation)

    def kind(self, sample: int) -> str:
        return self.evaluated.sample(0, sample).facts.task.value

    def right_answer(self, sample: int) -> str:
        """What the curve says, by rule."""
        return self.evaluated.sample(0, sample).answer

    def example(self, sample: int, text: str, blind: str) -> Example:
        source = self.evaluated
        shown = answer_record(sample, source.sample(0, sample), source.timelines.notation, text, blind)
        return Example(
            name=f"{sample} {shown.task}",
            question=shown.question,
            expected=shown.truth,
            answer=text,
            right=not shown.errors,
            picture=png(draw(shown)),
            blind=blind,
        )

    def describe(self, row: int) -> Mapping[str, Any]:
        return self.evaluated.rows[row].record

    # -- reports -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Writes into `root` a report on what the model is going to be trained with, and the cache if there is one."""
        if self.cached_epochs:
            extents = {split: Extent(size) for split, size in self.sizes.items()}
            extents[Split.TRAIN] = Extent(self.sizes[Split.TRAIN], self.cached_epochs)
            write_cache(self._cache, self.synthesis, extents, progress=_say)
        source = self._asked_of(self.synthesis, Split.TRAIN)
        samples = [source.sample(0, index) for index in range(min(_REPORTED, len(source)))]
        shown = [question_record(index, sample, self.synthesis.notation) for index, sample in enumerate(samples)]
        about = {
            "split": "training",
            "format": Format(self.synthesis.format).value,
            "seed": str(self.synthesis.seed),
            "samples": f"the first {len(samples):,} of {len(source):,} in an epoch",
        }
        log.info("report: %s", write_data_report(Path(self.root), shown, about, self._tokens))

    def write_prediction_report(self, folder: str, answers: Sequence[tuple[int, str, str]]) -> None:
        """Every question of the test with the curve, the right answer, the model's, and what it says blind."""
        source = self.evaluated
        notation = source.timelines.notation
        samples = [source.sample(0, sample) for sample, _, _ in answers]
        texts = [(text, blind) for _, text, blind in answers]
        shown = [
            answer_record(number, sample, notation, text, blind)
            for (number, text, blind), sample in zip(answers, samples, strict=True)
        ]
        about = {
            "run": Path(folder).name,
            "checkpoint": str(self.trainer.ckpt_path),
            "timelines": self.timelines or f"synthetic, seed {self.synthesis.seed}",
        }
        path = write_prediction_report(Path(folder), shown, answer_figures(samples, texts, notation), about)
        log.info("report: %s", path)

    def _tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text))


def _say(done: int, every: int) -> None:
    log.info("%s of %s samples written", f"{done:,}", f"{every:,}")
