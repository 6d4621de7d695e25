"""Provides generated series with questions of general types: a DataModule."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from datamodules.multimodal.predict_questions import questions_path
from datamodules.multimodal.recorded_settings import recorded_fields
from datamodules.multimodal.synthetic_split import Split, generated_dataset_card
from datamodules.temporal.series.datamodule import SeriesDataModule, SeriesOptions
from datamodules.temporal.series.series_question import SeriesLimits, SeriesQuestion
from datamodules.temporal.synthetic_series.question_types import KINDS, draw_question
from datamodules.temporal.user_series.datamodule import QuestionList, read_series_questions
from engine.base_options import Unpack
from engine.determinism.stateless_rng import hash_bits
from engine.export.artifacts import DatasetCard
from engine.number_check import check_numbers

GENERATOR_VERSION = 1
"""Incremented by every change of the generated samples."""

_STREAM = 0x5E71  # hash key of this generator
_TEXTS = 1000  # questions whose texts the built-in tokenizer is trained on


@dataclass(frozen=True)
class SyntheticSeriesSettings:
    """Settings of the generated series.

    Args:
        seed: seed of the samples.
        min_steps: minimum length of a series.
        max_steps: maximum length of a series.
        task_mix: share of each kind of questions, in any unit; a missing kind has no share.
    """

    seed: int = 0
    min_steps: int = 24
    max_steps: int = 48
    task_mix: dict[Literal["trend", "season", "outlier", "correlation", "lag", "comparison"], float] = field(
        default_factory=lambda: {
            "trend": 1.0, "season": 1.0, "outlier": 1.0, "correlation": 1.0, "lag": 1.0, "comparison": 1.0
        }
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not 16 <= self.min_steps <= self.max_steps:
            raise ValueError(
                f"min_steps and max_steps: found {self.min_steps} and {self.max_steps}, expected 16 <= min_steps <= "
                "max_steps"
            )
        unknown = set(self.task_mix) - set(KINDS)
        if unknown or min(self.task_mix.values(), default=0) < 0 or sum(self.task_mix.values()) <= 0:
            raise ValueError(
                f"task_mix: found {self.task_mix}, expected shares of 0 or more of {', '.join(KINDS)}, and one above 0"
            )

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the kinds whose share is above 0, in a fixed order."""
        found = {str(kind): share for kind, share in self.task_mix.items() if share}
        return {kind: found[kind] for kind in KINDS if kind in found}


class GeneratedQuestions:
    """Generated questions; a question is a pure function of (settings, split, epoch, index).

    Args:
        settings: settings of the series.
        split: training, validation or test.
        size: questions of an epoch.
        fresh: draw new questions in every epoch.
    """

    def __init__(self, settings: SyntheticSeriesSettings, split: Split, size: int, fresh: bool = False) -> None:
        self.settings, self.split, self.size, self.fresh = settings, split, size, fresh
        shares = np.cumsum(list(settings.shares.values()))
        self._kinds, self._until = tuple(settings.shares), shares / shares[-1]
        self._cached: dict[int, SeriesQuestion] = {}

    def __len__(self) -> int:
        return self.size

    def question(self, epoch: int, index: int) -> SeriesQuestion:
        """Return a question. Questions of an evaluation are kept, because grading reads them again."""
        if self.split == Split.TRAIN:
            return self._draw(epoch if self.fresh else 0, index)
        if index not in self._cached:
            self._cached[index] = self._draw(0, index)
        return self._cached[index]

    def name(self, epoch: int, index: int) -> str:
        """Return the index of a question."""
        return str(index)

    def _draw(self, epoch: int, index: int) -> SeriesQuestion:
        key = int(hash_bits(self.settings.seed, _STREAM, GENERATOR_VERSION, self.split, epoch, index))
        random = np.random.Generator(np.random.Philox(key=key))
        # The cumulative shares divide 0 to 1 into a range for each kind.
        kind = self._kinds[int(np.searchsorted(self._until, random.random(), side="right"))]
        item = draw_question(random, kind, self.settings.min_steps, self.settings.max_steps)
        return SeriesQuestion(
            where=str(index),
            key="",
            question=item.question,
            series=item.series,
            options=item.options,
            answer=item.answer,
            kind=item.kind,
        )


class SyntheticSeries(SeriesDataModule):
    """Generated series with questions of general kinds: trend, season, outlier, correlation, lag, comparison.

    All questions have options, of which each is right equally often, whatever the texts are.

    Args:
        synthesis: settings of the series and the questions.
        num_samples: questions of an epoch.
        fresh_samples: draw new questions in every epoch instead of repeating the same ones.
        validation_size: questions of a validation.
        test_size: questions of a test.
        questions: file of series and questions that `predict` answers, see SeriesQuestions.
        **batches: see SeriesDataModule, MultimodalDataModule and LockstepDataModule.
    """

    def __init__(
        self,
        synthesis: SyntheticSeriesSettings | None = None,
        num_samples: int = 3200,
        fresh_samples: bool = True,
        validation_size: int = 300,
        test_size: int = 1000,
        questions: str | None = None,
        **batches: Unpack[SeriesOptions],
    ) -> None:
        super().__init__(**batches)
        sizes = {"num_samples": num_samples, "validation_size": validation_size, "test_size": test_size}
        check_numbers("data.init_args.", sizes, at_least=1)
        self.synthesis, self.fresh_samples = synthesis or SyntheticSeriesSettings(), fresh_samples
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        self.questions_file = questions
        self.kind_names = tuple(self.synthesis.shares)

    @override
    def dataset_card(self) -> DatasetCard:
        content = "Generated series with questions about them"
        return generated_dataset_card("Lockstep's synthetic series", content, self.sizes)

    @property
    @override
    def predict_input(self) -> str | None:
        return self.questions_file

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_set = self.examples(self.chats(self._generate(Split.TRAIN, self.fresh_samples)))
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self.chats(self._generate(Split.VALIDATION)))
        if stage == "test":
            self.test_set = self.questions(self.chats(self._generate(Split.TEST)))
        if stage == "predict":
            path = questions_path(self.questions_file, "a file of series and questions")
            questions = read_series_questions(path, SeriesLimits(), answers=False)
            self.predict_set = self.questions(self.chats(QuestionList(questions)), in_order=True)

    @override
    def trained_steps(self) -> int:
        return self.synthesis.max_steps

    def _generate(self, split: Split, fresh: bool = False) -> GeneratedQuestions:
        return GeneratedQuestions(self.synthesis, split, self.sizes[split], fresh)

    @override
    def texts(self) -> Iterator[str]:
        # Depends on no setting, so other mixes and lengths have the same tokens.
        return self.texts_of(self.chats(GeneratedQuestions(SyntheticSeriesSettings(), Split.TRAIN, _TEXTS)))

    def _order_identity(self) -> dict[str, Any]:
        # On a resume within an epoch, the remaining samples must be the same.
        return {**super()._order_identity(), "series": self.sample_identity()}

    def sample_identity(self) -> str:
        """Return a digest of everything that the samples depend on. Checkpoints compare it."""
        settings = recorded_fields(self.synthesis, {"task_mix": "mix"})
        generator = [settings, self.fresh_samples, GENERATOR_VERSION]
        return hashlib.sha256(json.dumps(generator, sort_keys=True).encode()).hexdigest()[:12]
