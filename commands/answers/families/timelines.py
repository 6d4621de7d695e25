"""Answers questions about resource timelines: with text, and the points of the curve that the answer names."""

import csv
import io
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from typing_extensions import override

from commands.answers.answer_blocks import AnswerBlock, Chart, ChartLine, ChartMark, Text
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
from commands.answers.families.series import SeriesAnswers
from datamodules.multimodal.batch import ChatEvaluationBatch
from datamodules.temporal.series.datamodule import SeriesDataModule
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.timelines.channels import CHANNELS, KEYS, Format
from datamodules.temporal.timelines.datamodule import ResourceTimelines
from datamodules.temporal.timelines.dataset import TimelineQuestions
from datamodules.temporal.timelines.recorded.predict_questions import TimelinePredictDataset
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample
from datamodules.temporal.timelines.text.question_text import read_answer, read_question
from engine.data.samplers import MicroBatchRequest
from lightning_modules.temporal.module import SeriesLanguageModel

_EXAMPLES, _SEARCHED, _SHOWN_STEPS = 6, 60, 600
_MAX_SKETCHED = 240


def choose_answers(
    model: SeriesLanguageModel, data: ResourceTimelines | SeriesDataModule
) -> "TimelineAnswers | SeriesAnswers":
    """Return the answer service for timelines of machines, or for a user's series."""
    return TimelineAnswers(model, data) if isinstance(data, ResourceTimelines) else SeriesAnswers(model, data)


class TimelineAnswers(AnswerService):
    """Answers questions about a timeline in a CSV file.

    Args:
        model: model with its weights.
        data: data module of the run, set up for a validation, whose samples are the examples.
    """

    task = "Give the timeline of a machine and ask about it."

    def __init__(self, model: SeriesLanguageModel, data: ResourceTimelines) -> None:
        self._model, self._data = model, data
        self._examples = self._sample_of_each_kind()
        questions = tuple(
            FieldChoice(text, text) for text in dict.fromkeys(_question(sample) for sample in self._examples)
        )
        columns = f"Columns: time_ms, and some of {', '.join(KEYS)}."
        both = (FieldChoice("yes", "yes"), FieldChoice("no", "no"))
        self.fields = [
            InputField(
                "timeline", "file", "Timeline", columns, (".csv",), max_bytes=2 * MEGABYTE, sketch=self._sketch()
            ),
            InputField("question", "text", "Question", "In your own words, or as one of these.", choices=questions),
            InputField("blind", "choice", "Also answer without the timeline", choices=both),
        ]

    def _sketch(self) -> Sketch:
        """Return the axes of a drawn timeline. Their tops are the smallest capacities, so that these are assumed."""
        curves = tuple(
            SketchedCurve(channel.key, min(channel.capacities), channel.unit.strip()) for channel in CHANNELS
        )
        settings = self._data.synthesis
        return Sketch(curves, min(settings.max_steps, _MAX_SKETCHED), "time_ms", settings.step_ms)

    @override
    def data_identity(self) -> dict[str, str]:
        return {"format of values": str(self._data.synthesis.format)}

    def _sample_of_each_kind(self) -> list[TimelineSample]:
        source = self._data.validation_set.source
        assert isinstance(source, TimelineQuestions), "the data are set up for a validation"
        samples = (source.sample(0, row) for row in range(min(_SEARCHED, len(source))))
        # A later sample replaces an earlier sample of its task.
        kinds = {sample.facts.task: sample for sample in samples}
        return list(islice(kinds.values(), _EXAMPLES))

    @override
    def examples(self) -> list[Example]:
        return [
            Example(
                _question(sample),
                {"timeline": [UploadedFile(f"example {number}.csv", _csv(sample))], "question": _question(sample)},
            )
            for number, sample in enumerate(self._examples, start=1)
        ]

    @override
    def accept(self, field: InputField, file: UploadedFile) -> Iterator[AnswerBlock]:
        yield _chart("given", "", self._read_series(file, "?")[0])

    @override
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        asked = question.text("question")
        source, capacities = self._read_series(question.file("timeline"), asked)
        try:
            batch = self._data.questions(source, in_order=True)[MicroBatchRequest(0, np.arange(1))]
        except ValueError as error:
            raise UserInputError(str(error)) from error
        if batch.skipped:
            raise UserInputError("the question cannot be used: it contains a special token of the model")
        batch = self._model.transfer_batch_to_device(batch, self._model.device, 0)
        assert isinstance(batch, ChatEvaluationBatch), "a batch keeps its type"
        text = ""
        features, max_tokens = self._model.features(batch.encoder_input), self._model.max_new_tokens
        for text in self._model.stream(batch.prompts, features, max_tokens):
            yield Text("answer", "", text, is_answer=True)
        # Again, so that an empty answer is shown, too.
        yield Text("answer", "", text, is_answer=True)
        channel, marks = self._marks(asked, text, capacities, len(source.rows[0].curves[0]))
        yield _chart("curve", "The timeline, and the points of the answer", source, channel, marks)
        if question.texts.get("blind", "yes") == "yes":
            blind = self._model.features(self._model.modality.blinded(batch.encoder_input))
            (without,) = self._model.generate(batch.prompts, blind, max_tokens)
            yield Text("blind", "Without the timeline", without or "(nothing)", faint=True)

    def _read_series(self, file: UploadedFile, question: str) -> tuple[TimelinePredictDataset, tuple[float, ...]]:
        """Return the timeline with its question as `predict` reads them, and the capacities of the channels."""
        with TemporaryDirectory() as folder:
            questions, table = Path(folder, "questions.jsonl"), Path(folder, "timeline.csv")
            table.write_bytes(file.content)
            record = {"question": question, "csv": table.name}
            questions.write_text(json.dumps(record) + "\n", encoding="utf-8")
            try:
                source = TimelinePredictDataset(questions, self._data.layout, self._data.synthesis.series_position)
                capacities = source.rows[0].capacities
            except ValueError as error:
                problem = str(error).replace(f"{questions}, line 1: ", "").replace(str(table), file.name)
                raise UserInputError(problem) from error
        return source, capacities

    def _marks(
        self, question: str, text: str, capacities: tuple[float, ...], steps: int
    ) -> tuple[str, list[ChartMark]]:
        """Return the channel that a question is about, and the points that its answer names, in % of the capacity.

        A step may be after the end of the timeline, of `steps` steps: the model can name any.
        """
        notation = self._data.synthesis.notation
        parsed = read_question(question, notation)
        if parsed is None:
            return "", []
        channel = str(parsed[1]["channel"])
        slots = read_answer(text, notation, channel)
        # Answers in the format `tiny` are in percent already, in the format `full` in units of the channel.
        scale = 1.0 if notation.format == Format.TINY else 100 / capacities[KEYS.index(channel)]
        points = [(slots.get("time"), slots.get("value"))]
        # An answer may be cut after a time, before its value.
        points += zip(slots.get("times") or (), slots.get("values") or (), strict=False)
        ends = (("start", 0), ("end", steps - 1))
        points += [(step, slots[name]) for name, step in ends if slots.get(name) is not None]
        return channel, [
            ChartMark(None if step is None else float(step), None if value is None else float(value) * scale)
            for step, value in points
            if step is not None or value is not None
        ]


def _chart(
    key: str, title: str, source: TimelinePredictDataset, channel: str = "", marks: list[ChartMark] | None = None
) -> Chart:
    values, present = source.rows[0].curves
    every = -(-len(values) // _SHOWN_STEPS)
    lines = []
    for column, name in enumerate(KEYS):
        if present[:, column].any():
            cells = zip(values[::every, column].tolist(), present[::every, column].tolist(), strict=True)
            lines.append(ChartLine(name, [round(100 * value, 2) if there else None for value, there in cells]))
    shown = [line for line in lines if line.name == channel] or lines
    outside = sorted({f"{mark.step:g}" for mark in marks or [] if mark.step is not None and mark.step >= len(values)})
    note = f"% of the capacity available, over {len(values):,} steps."
    if outside:
        note += f" The answer names step {', '.join(outside)}, after the last one, {len(values) - 1:,}."
    inside = [mark for mark in marks or [] if mark.step is None or mark.step < len(values)]
    return Chart(key, title, shown, inside, every, note, unit="%")


def _question(sample: TimelineSample) -> str:
    return sample.question.replace(PLACEHOLDER, "").strip()


def _csv(sample: TimelineSample) -> bytes:
    """Return the timeline of a sample as a file that `predict` reads."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["time_ms", *KEYS])
    for step, (values, present) in enumerate(zip(sample.values.tolist(), sample.present.tolist(), strict=True)):
        cells = [
            f"{value * capacity:.4f}" if there else ""
            for value, there, capacity in zip(values, present, sample.capacities, strict=True)
        ]
        writer.writerow([step * sample.step_ms, *cells])
    return text.getvalue().encode()
