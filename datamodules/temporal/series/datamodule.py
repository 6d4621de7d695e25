"""Provides the base of the DataModules of series with questions: forms of answers, grades, reports."""

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatExamples
from datamodules.multimodal.datamodule import ChatOptions, MultimodalDataModule
from datamodules.multimodal.reports.html_report import metric_rows
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.temporal.batch import SeriesLayout
from datamodules.temporal.series.dataset import LAYOUT_CHANNELS, PromptStyle, SeriesChats, SeriesQuestionSource
from datamodules.temporal.series.grading import METRICS, RIGHT, form_of, grade, points_of
from datamodules.temporal.series.plot import draw_series
from datamodules.temporal.series.report import answer_view, shown_question, write_test_report
from datamodules.temporal.series.series_question import SeriesQuestion
from datamodules.temporal.series_marker import PLACEHOLDER, SeriesPosition
from engine.base_options import Unpack
from engine.number_check import check_number, check_numbers
from engine.telemetry.image_grid import encode_png_grid
from engine.telemetry.sample_previews import SamplePreview

log = logging.getLogger("lockstep")

_TEXTS = 1000
"""Samples whose texts the built-in tokenizer is trained on."""

_REPORTED = 1000
"""Answers that the report shows with their series; its metrics cover all answers."""

MAX_KINDS = 64
"""Largest number of kinds with metrics of their own."""


class SeriesOptions(ChatOptions, total=False):
    """Options of SeriesDataModule, which describes them, and of its bases."""

    patch_length: int
    tolerance: float
    list_options: bool
    series_position: SeriesPosition


class SeriesDataModule(MultimodalDataModule):
    """Questions about one or several series each, with options or open answers.

    Args:
        patch_length: steps of a patch, which is a token for the language model.
        tolerance: largest relative error of a number that is right.
        list_options: show a question's options to the model; they are scored in either case.
        series_position: order of a question and its series.
        **batches: see MultimodalDataModule and LockstepDataModule.
    """

    marker = PLACEHOLDER
    baselines = ("chance",)
    train_set: ChatExamples

    def __init__(
        self,
        patch_length: int = 8,
        tolerance: float = 0.05,
        list_options: bool = True,
        series_position: SeriesPosition = "question_first",
        **batches: Unpack[ChatOptions],
    ) -> None:
        super().__init__(**batches)
        check_numbers("data.init_args.", {"patch_length": patch_length}, at_least=1)
        check_number("data.init_args.tolerance", tolerance, at_least=0, below=1)
        self.tolerance = tolerance
        self.style = PromptStyle(series_position, list_options)
        self.layout = SeriesLayout(LAYOUT_CHANNELS, "channel_patch", patch_length)
        self.kind_names: tuple[str, ...] = ()
        # The same options are scored for many questions. A cache of the object, so that it is freed with it.
        self._options = lru_cache(maxsize=4096)(self._encode_option)

    @property
    def outcomes(self) -> tuple[str, ...]:  # type: ignore[override]  # known once the files are read
        """Names of the outcomes of a grade."""
        return (RIGHT, *METRICS.values(), *(f"{kind}/{RIGHT}" for kind in self.kinds))

    @property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]  # known once the files are read
        """Kinds of the questions that are evaluated."""
        return self.kind_names

    def trained_steps(self) -> int:
        """Return the number of steps of the longest training series; in a fit."""
        source = self.train_set.source
        assert isinstance(source, SeriesChats)
        return source.longest

    def evaluated_steps(self) -> int:
        """Return the number of steps of the longest series of the evaluated set."""
        source = self.evaluated
        assert isinstance(source, SeriesChats)
        return source.longest

    def chats(self, questions: SeriesQuestionSource) -> SeriesChats:
        """Return questions as samples of chats."""
        return SeriesChats(questions, self.layout, self.style)

    def texts_of(self, chats: SeriesChats) -> Iterator[str]:
        """Return the texts of the first samples, on which the built-in tokenizer is trained."""
        for index in range(min(_TEXTS, len(chats))):
            question = chats.questions.question(0, index)
            messages = chats.item(0, index).messages
            yield "\n".join([*(message["content"].replace(PLACEHOLDER, "") for message in messages), *question.options])

    # -- answers -----------------------------------------------------------------------------------------------------

    def question(self, sample: int) -> SeriesQuestion:
        """Return a question of the evaluated set."""
        source = self.evaluated
        assert isinstance(source, SeriesChats)
        question = source.questions.question(0, sample)
        return question if question.kind in self.kinds else question._replace(kind="")

    @override
    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        return grade(self.question(sample), text, self.tolerance)

    def chance(self, sample: int) -> dict[str, tuple[float, float]]:
        """Return the expected points of a guess among the options; an open question cannot be guessed."""
        question = self.question(sample)
        return points_of(question, (1 / len(question.options) if question.options else 0.0, 1.0))

    @override
    def kind(self, sample: int) -> str:
        return self.question(sample).kind

    def question_text(self, sample: int) -> str:
        """Return what a sample asks, as people read it."""
        return shown_question(self.question(sample))

    def right_answer(self, sample: int) -> str:
        """Return the reference answer to a sample."""
        return self.question(sample).answer or ""

    def options(self, sample: int) -> tuple[str, ...]:
        """Return the options of a question; empty for an open question, and for padding (a negative sample)."""
        return self.question(sample).options if sample >= 0 else ()

    def option_tokens(self, option: str) -> tuple[int, ...]:
        """Return the tokens of an option as the assistant's turn, the end of the turn among them."""
        return self._options(option)

    def _encode_option(self, option: str) -> tuple[int, ...]:
        messages = [Message(role="user", content="?"), Message(role="assistant", content=option)]
        chat = self.chat_encoder.chat(messages, (), option)
        return tuple(chat.tokens[chat.supervised].tolist())

    @override
    def describe(self, row: int) -> dict[str, Any]:
        question = self.question(row)
        fields = {"key": question.key, "kind": question.kind, "question": question.question}
        described: dict[str, Any] = {key: value for key, value in fields.items() if value}
        if question.options:
            described["options"] = list(question.options)
        if question.answer is not None:
            described["reference"] = question.answer
        return described

    # -- reports -----------------------------------------------------------------------------------------------------

    def sample_preview(self, sample: int, text: str, blind: str) -> SamplePreview:
        """Return a preview of a sample of the evaluated set with the model's answers."""
        question = self.question(sample)
        return SamplePreview(
            name=f"{sample} {question.kind or form_of(question).value}",
            question=shown_question(question),
            expected=question.answer or "",
            answer=text,
            right=self.grade(sample, text)[RIGHT][0] == 1,
            picture=encode_png_grid(draw_series(question.series)),
            blind=blind,
        )

    def write_test_report(self, folder: str, answers: Sequence[tuple[int, str, str]]) -> None:
        """Write a report of a test: questions with their series, the references and the answers.

        Args:
            folder: folder of the run.
            answers: (sample, answer, answer without the series), in the order of the samples.
        """
        assert self.trainer is not None  # the test ran under a trainer
        graded = [
            {"model": self.grade(sample, text), "blind": self.grade(sample, blind), "rules": self.chance(sample)}
            for sample, text, blind in answers
        ]
        views = [
            answer_view(sample, self.question(sample), text, blind, grades["model"], grades["blind"])
            for (sample, text, blind), grades in zip(answers[:_REPORTED], graded, strict=False)
        ]
        shown = f"the first {len(views):,} of {len(answers):,}; the metrics cover all"
        about = {"run": Path(folder).name, "checkpoint": str(self.trainer.ckpt_path), "answers": shown}
        path = write_test_report(Path(folder), views, metric_rows(self.outcomes, graded), about)
        log.info("report: %s", path)


def kinds_of(questions: Sequence[SeriesQuestion]) -> tuple[str, ...]:
    """Return the kinds of questions in order of their names; none if there are more than MAX_KINDS."""
    kinds = sorted({question.kind for question in questions} - {""})
    return tuple(kinds) if len(kinds) <= MAX_KINDS else ()
