"""Builds the records of the reports from samples and answers."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from datamodules.multimodal.reports.html_report import MetricRow, metric_rows, outcome_title
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.timelines.channels import CHANNELS, KEYS, Format
from datamodules.temporal.timelines.grading import MEASURES, OUTCOMES, errors, grade
from datamodules.temporal.timelines.reports.sample_view import Mark, MarkKind, SampleView
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample
from datamodules.temporal.timelines.text.facts import Facts, Present, StartTime
from datamodules.temporal.timelines.text.number_format import Notation
from datamodules.temporal.timelines.text.question_text import read_answer
from datamodules.temporal.timelines.text.templates import ANSWERS, QUESTIONS

_SLOT = re.compile(r"\{(\w+)\}")


def question_record(number: int, sample: TimelineSample, notation: Notation) -> SampleView:
    """Return the view of a sample with its question and reference answer."""
    facts = sample.facts
    question = sample.question.replace(PLACEHOLDER, "").strip()
    return SampleView(
        sample=number,
        task=facts.task.value,
        channels=KEYS,
        # Curves are drawn in physical units, whatever the notation of the texts.
        units=tuple(channel.unit for channel in CHANNELS),
        capacities=sample.capacities,
        step_ms=sample.step_ms,
        values=sample.values,
        present=sample.present,
        question=question,
        truth=sample.answer,
        truth_class=_class(facts),
        template=template_of(question, "question", notation, facts.channel),
        truth_template=template_of(sample.answer, "answer", notation, facts.channel),
        reads_back=grade(facts, sample.answer, notation)["exact"] == (1.0, 1.0),
        asked=_stated_facts(facts),
        asked_channel=facts.channel,
        marks=(*_asked_marks(sample, notation), *_marks(MarkKind.TRUE, sample, vars(facts), notation)),
    )


def answer_record(number: int, sample: TimelineSample, notation: Notation, answer: str, blind: str) -> SampleView:
    """Return the view of a sample with an answer, and the same model's answer without the series."""
    record, facts = question_record(number, sample, notation), sample.facts
    predicted = _marks(MarkKind.PREDICTED, sample, read_answer(answer, notation, facts.channel), notation)
    outcomes = grade(facts, answer, notation)
    return record._replace(
        marks=(*record.marks, *predicted),
        answer=answer,
        blind=blind,
        outcomes={outcome_title(name): outcomes[name] for name in MEASURES if name in outcomes},
        errors=errors(facts, answer, notation),
        blind_errors=errors(facts, blind, notation),
    )


def answer_metrics(
    samples: Iterable[TimelineSample], answers: Iterable[tuple[str, str]], notation: Notation
) -> list[MetricRow]:
    """Compute the metrics over all tasks and per task, for answers (text, blind text) and for the rules."""
    graded = (
        {
            system: grade(sample.facts, output, notation)
            for system, output in (("model", text), ("blind", blind), ("rules", sample.answer))
        }
        for sample, (text, blind) in zip(samples, answers, strict=True)
    )
    return metric_rows(OUTCOMES, graded)


@lru_cache(maxsize=256)
def _templates(kind: str, notation: Notation, channel: str) -> list[tuple[str, re.Pattern[str]]]:
    """Return each template with the pattern that matches its texts."""
    table = (QUESTIONS if kind == "question" else ANSWERS)[notation.format]
    unique = dict.fromkeys(template for templates in table.values() for template in templates)
    found = []
    for template in unique:
        literals, slots = _SLOT.split(template)[::2], _SLOT.findall(template)
        pattern = re.escape(literals[0])
        for slot, literal in zip(slots, literals[1:], strict=True):
            pattern += notation.pattern(slot, channel) + re.escape(literal)
        found.append((template, re.compile(pattern, re.IGNORECASE)))
    return found


def template_of(text: str, kind: str, notation: Notation, channel: str) -> str:
    """Return the template of a question or an answer; the empty string if no template matches."""
    matching = (template for template, pattern in _templates(kind, notation, channel) if pattern.fullmatch(text))
    return next(matching, "")


def _class(facts: Facts) -> str | None:
    decided = facts.direction or facts.verdict
    return None if decided is None else decided.value


def _stated_facts(facts: Facts) -> dict[str, float | str]:
    """Return the facts that the question states, for the leak check."""
    asked: dict[str, float | str] = {"channel": facts.channel, "capacity": facts.capacity, "steps": facts.steps}
    if facts.requirement is not None:
        asked |= {"requirement": facts.requirement, "share required": facts.requirement / facts.capacity}
    if facts.times is not None:
        asked |= {"first step": facts.times[0], "steps asked": len(facts.times)}
    return asked


def _physical(sample: TimelineSample, channel: str, value: float, notation: Notation) -> float:
    """Convert a value of a text to the channel's unit; the tiny format writes percent."""
    capacity = sample.capacities[KEYS.index(channel)]
    return value * capacity / 100 if notation.format == Format.TINY else value


def _measured_steps(sample: TimelineSample) -> Present:
    """Return where the queried channel was measured, bool [T]."""
    return sample.present[:, KEYS.index(sample.facts.channel)]


def _asked_marks(sample: TimelineSample, notation: Notation) -> list[Mark]:
    facts, seconds = sample.facts, sample.step_ms / 1000
    marks = []
    if facts.requirement is not None:
        level = _physical(sample, facts.channel, facts.requirement, notation)
        marks.append(Mark(MarkKind.ASKED, facts.channel, None, level))
    marks += [Mark(MarkKind.ASKED, facts.channel, step * seconds, None) for step in facts.times or ()]
    return marks


def _marks(kind: MarkKind, sample: TimelineSample, slots: Mapping[str, Any], notation: Notation) -> list[Mark]:
    """Return the points of the curve that facts, or the slots of an answer, refer to."""
    facts, seconds = sample.facts, sample.step_ms / 1000
    points: list[tuple[float | None, float | None]] = []
    last = (facts.steps - 1) * seconds
    points += [(time, slots[name]) for name, time in (("start", 0.0), ("end", last)) if slots.get(name) is not None]
    value, time = slots.get("value"), slots.get("time")
    if slots.get("verdict") == StartTime.NOW:
        # "Now" is the first measured step.
        time = int(np.argmax(_measured_steps(sample)))
    if slots.get("verdict") == StartTime.NEVER and kind == MarkKind.TRUE:
        # The reference states the largest amount without its time; the mark is drawn where it was measured.
        time = int(np.argmax(np.where(_measured_steps(sample), sample.values[:, KEYS.index(facts.channel)], -1.0)))
    if value is not None or time is not None:
        points.append((None if time is None else time * seconds, value))
    points += [
        (step * seconds, value)
        for step, value in zip(slots.get("times") or (), slots.get("values") or (), strict=False)
    ]
    return [
        Mark(kind, facts.channel, time, None if value is None else _physical(sample, facts.channel, value, notation))
        for time, value in points
    ]
