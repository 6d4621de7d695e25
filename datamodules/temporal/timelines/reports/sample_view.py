"""Defines a view of a sample for the reports: plain values, independent of synthesis and grading."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.reports.word_diff import word_differences


class MarkKind(str, Enum):
    """Origin of a mark."""

    ASKED = "asked"  # from the question: a required level, a time
    TRUE = "true"
    PREDICTED = "predicted"


class Mark(NamedTuple):
    """A point of a curve; a level if the time is None, a time if the value is None."""

    kind: MarkKind
    channel: str
    time_s: float | None
    value: float | None  # in the channel's unit


class SampleView(NamedTuple):
    """A sample of K channels and T steps with its question and an optional answer."""

    sample: int
    task: str
    channels: tuple[str, ...]  # [K]
    units: tuple[str, ...]  # [K]
    capacities: tuple[float, ...]  # [K] in the units
    step_ms: float
    values: NDArray[np.floating]  # [T, K] share of the capacity; arbitrary where missing
    present: NDArray[np.bool_]  # [T, K]
    question: str
    truth: str
    truth_class: str | None = None  # None for tasks without classes
    template: str = ""  # template of the question
    truth_template: str = ""
    reads_back: bool = True  # whether the reference, parsed as an answer, is graded as exact
    asked_channel: str = ""
    asked: Mapping[str, float | str] = {}  # facts that the question states, as plain values
    marks: tuple[Mark, ...] = ()
    answer: str | None = None  # None without an answer
    blind: str | None = None  # answer of the same model without the series
    outcomes: Mapping[str, tuple[float, float]] = {}  # {title of the outcome: (reached, possible)}
    errors: tuple[str, ...] = ()  # kinds of error: value, time, class, unreadable; empty if the answer is right
    blind_errors: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """Return the record of the JSON file: values in the channels' units, null for a missing measurement."""
        record = {
            "sample": int(self.sample),
            "task": self.task,
            "class": self.truth_class,
            "template": self.template,
            "asked_channel": self.asked_channel,
            "step_ms": self.step_ms,
            "curves": [self._curve(k) for k in range(len(self.channels))],
            "marks": [{**mark._asdict(), "kind": mark.kind.value} for mark in self.marks],
            "question": self.question,
            "truth": self.truth,
        }
        if self.answer is not None:
            truth, answer = word_differences(self.truth, self.answer)
            record |= {
                "answer": self.answer,
                "blind": self.blind,
                "truth_parts": truth,
                "answer_parts": answer,
                "outcomes": {name: list(outcome) for name, outcome in self.outcomes.items()},
                "errors": list(self.errors),
                "blind_errors": list(self.blind_errors),
            }
        return record

    def _curve(self, k: int) -> dict[str, Any]:
        capacity = float(self.capacities[k])
        # Four digits of the capacity exceed the resolution of a screen and keep thousands of curves small.
        decimals = max(0, 4 - len(str(int(capacity))))
        values = np.round(self.values[:, k].astype(np.float64) * capacity, decimals).tolist()
        values = [
            value if present else None for value, present in zip(values, self.present[:, k].tolist(), strict=True)
        ]
        return {"channel": self.channels[k], "unit": self.units[k].strip(), "capacity": capacity, "values": values}
