"""Answers questions about a user's series in CSV files: with text, or with the likelihood of each option."""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from typing_extensions import override

from commands.answers.answer_blocks import AnswerBlock, Bar, Bars, Chart, ChartLine, Text
from commands.answers.answer_service import (
    MEGABYTE,
    AnswerService,
    Example,
    FieldChoice,
    InputField,
    Sketch,
    SketchedCurve,
    UploadedFile,
    UserInputError,
    UserQuestion,
)
from commands.answers.families.option_field import OPTIONS, read_options
from datamodules.multimodal.batch import ChatEvaluationBatch
from datamodules.temporal.series.datamodule import SeriesDataModule
from datamodules.temporal.series.dataset import SeriesChats
from datamodules.temporal.series.normalization import normalize
from datamodules.temporal.series.series_question import InputSeries, SeriesLimits, SeriesQuestion
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.user_series.datamodule import QuestionList
from datamodules.temporal.user_series.record_parser import RecordParser
from engine.data.samplers import MicroBatchRequest
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.language.prefix_cache import PrefixCache
from lightning_modules.temporal.module import SeriesLanguageModel
from lightning_modules.temporal.series_evaluation import option_log_likelihoods

_MAX_FILES, _EXAMPLES, _SEARCHED, _SHOWN_POINTS, _SHOWN_SERIES = 4, 6, 60, 600, 6
_MIN_SKETCHED, _MAX_SKETCHED = 24, 120


class SeriesAnswers(AnswerService):
    """Answers questions about series in CSV files.

    Args:
        model: model with its weights.
        data: data module of the run, set up for a validation, whose samples are the examples.
    """

    task = "Give series and ask about them."

    def __init__(self, model: SeriesLanguageModel, data: SeriesDataModule) -> None:
        self._model, self._data = model, data
        self._limits: SeriesLimits = getattr(data, "limits", SeriesLimits())
        self._shown = self._question_of_each_kind()
        choices = tuple(
            FieldChoice(text, text)
            for text in dict.fromkeys(_without_placeholders(question) for question in self._shown)
        )
        columns = "Each column but the stamps is a series: time, load (kW), flow (l/s)."
        self.fields = [
            InputField(
                "series",
                "file",
                "Series",
                columns,
                (".csv",),
                max_bytes=2 * MEGABYTE,
                max_count=_MAX_FILES,
                sketch=Sketch((SketchedCurve("drawn", 100),), self._sketched_steps()),
            ),
            InputField("question", "text", "Question", "In your own words, or as one of these.", choices=choices),
            OPTIONS,
            InputField(
                "blind",
                "choice",
                "Also answer without the series",
                choices=(FieldChoice("yes", "yes"), FieldChoice("no", "no")),
            ),
        ]

    def _sketched_steps(self) -> int:
        """Return the number of steps of a drawn series: the length of the longest example, within limits."""
        longest = max((len(series.values) for question in self._shown for series in question.series), default=0)
        return min(max(longest, _MIN_SKETCHED), _MAX_SKETCHED)

    def _question_of_each_kind(self) -> list[SeriesQuestion]:
        source = self._data.validation_set.source
        assert isinstance(source, SeriesChats), "the data are set up for a validation"
        questions = [source.questions.question(0, row) for row in range(min(_SEARCHED, len(source)))]
        # A later question replaces an earlier question of its kind.
        kinds = {question.kind or question.question: question for question in questions}
        return list(islice(kinds.values(), _EXAMPLES))

    @override
    def examples(self) -> list[Example]:
        examples = []
        for number, question in enumerate(self._shown, 1):
            files = [
                UploadedFile(f"example {number}.{column}.csv", _csv(series))
                for column, series in enumerate(question.series, 1)
            ]
            values = {
                "series": files,
                "question": _without_placeholders(question),
                "options": "\n".join(question.options),
            }
            try:
                self._parse(files, _without_placeholders(question), list(question.options))
            except UserInputError:  # a name that no CSV file can have
                continue
            examples.append(Example(_without_placeholders(question), values))
        return examples

    @override
    def accept(self, field: InputField, file: UploadedFile) -> Iterator[AnswerBlock]:
        yield from _charts("given", self._parse([file], "?", []).series)

    @override
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        asked, options = question.text("question"), read_options(question.texts.get("options", ""))
        files = question.files.get("series", ())
        if not files:
            raise UserInputError("Series: no file is given; give one first")
        parsed = self._parse(files, asked, options)
        try:
            batch = self._data.questions(self._data.chats(QuestionList([parsed])), in_order=True)[
                MicroBatchRequest(0, np.arange(1))
            ]
        except ValueError as error:
            raise UserInputError(str(error)) from error
        if batch.skipped:
            raise UserInputError(f"the question cannot be used: {batch.skipped[0].what}")
        batch = self._model.transfer_batch_to_device(batch, self._model.device, 0)
        assert isinstance(batch, ChatEvaluationBatch), "a batch keeps its type"
        yield from self._answers(batch, self._model.features(batch.encoder_input), parsed.options)
        yield from _charts("series", parsed.series)
        if question.texts.get("blind", "yes") == "yes":
            blind = self._model.features(self._model.modality.blinded(batch.encoder_input))
            *_, last = (block for block in self._answers(batch, blind, parsed.options) if isinstance(block, Text))
            yield Text("blind", "Without the series", last.text or "(nothing)", faint=True)

    def _answers(self, batch: ChatEvaluationBatch, features: Features, options: Sequence[str]) -> Iterator[Text | Bars]:
        """Yield the answer: the likeliest option, or text token by token."""
        if not options:
            text = ""
            for text in self._model.stream(batch.prompts, features, self._model.max_new_tokens):
                yield Text("answer", "", text, is_answer=True)
            # Again, so that an empty answer is shown, too.
            yield Text("answer", "", text, is_answer=True)
            return
        cache = PrefixCache(self._model.language_model, self._model.embed(batch.prompts, features), batch.prompts.mask)
        tokens = [self._data.option_tokens(option) for option in options]
        # `demo` and `chat` have a single rank, so the ranks agree on every number.
        (scores,) = option_log_likelihoods(cache, [tokens], self._model.device, lambda number: number)
        yield Text("answer", "", options[scores.index(max(scores))], is_answer=True)
        chances = torch.tensor(scores, dtype=torch.float64).softmax(0).tolist()
        bars = [Bar(option, round(chance, 4)) for option, chance in zip(options, chances, strict=True)]
        yield Bars("chances", "Options", sorted(bars, key=lambda bar: -bar.share))

    def _parse(self, files: Sequence[UploadedFile], asked: str, options: list[str]) -> SeriesQuestion:
        """Return a question about files as `predict` reads it."""
        with TemporaryDirectory() as folder:
            # Numbered, because the names of two uploads may be equal.
            paths = {Path(folder, f"{index}.csv"): file for index, file in enumerate(files)}
            for path, file in paths.items():
                path.write_bytes(file.content)
            series = [{"file": path.name} for path in paths]
            try:
                parser = RecordParser(Path(folder), self._limits, answers=False)
                return parser.parse("the question", {"question": asked, "series": series, "options": options})
            except ValueError as error:
                message = str(error).removeprefix("the question: ")
                for path, file in paths.items():
                    # A visitor knows the name of the upload, not the name of the temporary file.
                    message = message.replace(str(path), file.name)
                raise UserInputError(message) from error


def _without_placeholders(question: SeriesQuestion) -> str:
    return " ".join(question.question.replace(PLACEHOLDER, "").split())


def _csv(series: InputSeries) -> bytes:
    """Return a series as a file that `predict` reads."""
    text = io.StringIO()
    writer = csv.writer(text)
    name = f"{series.name} ({series.unit})" if series.unit else series.name
    writer.writerow([name] if series.step is None else ["time", name])
    for step, value in enumerate(series.values.tolist()):
        cell = "" if np.isnan(value) else repr(value)
        writer.writerow([cell] if series.step is None else [step * series.step, cell])
    return text.getvalue().encode()


def _duration(seconds: float) -> str:
    """Return a time in the largest unit of which it is a multiple: `1 h`, `90 s`."""
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    size, unit = next((pair for pair in units if seconds and seconds % pair[0] == 0), (1, "s"))
    return f"{seconds / size:g} {unit}"


def _charts(key: str, series: Sequence[InputSeries]) -> Iterator[Chart]:
    """Yield a chart of each series, from its smallest to its largest value."""
    for index, shown in enumerate(series[:_SHOWN_SERIES]):
        normalized = normalize(shown.values)
        every = -(-len(shown.values) // _SHOWN_POINTS)
        cells = zip(normalized.shares[::every].tolist(), normalized.present[::every].tolist(), strict=True)
        line = ChartLine(
            f"{shown.name} {shown.unit}".strip(), [round(100 * share, 2) if there else None for share, there in cells]
        )
        measured = shown.values[normalized.present]
        ends = (float(measured.min()), float(measured.max())) if len(measured) else (0.0, 100.0)
        span = f"from {ends[0]:g} to {ends[1]:g}" if len(measured) else "nothing measured"
        step = "" if shown.step is None else f" of {_duration(shown.step)}"
        yield Chart(
            key=f"{key} {index}",
            title="",
            lines=[line],
            marks=[],
            every=every,
            note=f"{len(shown.values):,} steps{step}, {span}.",
            span=ends,
        )
