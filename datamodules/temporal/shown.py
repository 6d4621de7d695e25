"""A sample as the reports show it: plain values, independent of how it was made and graded."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.word_differences import word_differences


class MarkKind(str, Enum):
    """Who says that something is there."""

    ASKED = "asked"  # the question: a required level, a moment
    TRUE = "true"
    PREDICTED = "predicted"


class Mark(NamedTuple):
    """A point of a curve; a level where the time is None, a moment where the value is None."""

    kind: MarkKind
    channel: str
    time_s: float | None
    value: float | None  # in the channel's unit


class Shown(NamedTuple):
    """One sample of K channels and T steps, with its question; what was answered, where it was."""

    sample: int
    task: str
    channels: tuple[str, ...]  # [K]
    units: tuple[str, ...]  # [K]
    capacities: tuple[float, ...]  # [K] in the units
    step_ms: float
    values: NDArray[np.floating]  # [T, K] share of the capacity; any number where missing
    present: NDArray[np.bool_]  # [T, K]
    question: str
    truth: str
    truth_class: str | None = None  # of tasks that have classes
    template: str = ""  # of the question
    truth_template: str = ""
    reads_back: bool = True  # whether the truth, read as an answer is, is graded as exact
    asked_channel: str = ""
    asked: Mapping[str, float | str] = {}  # what the question says, as plain values
    marks: tuple[Mark, ...] = ()
    answer: str | None = None  # None where nothing was answered
    blind: str | None = None  # the same model's answer without the series
    outcomes: Mapping[str, tuple[float, float]] = {}  # {what was graded: (reached, possible)}
    errors: tuple[str, ...] = ()  # kinds of error: value, time, class, unreadable; none if the answer is right
    blind_errors: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """What the JSON file holds of it: values in the channels' units, null where a measurement is missing."""
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
        # Four digits of the capacity are more than a screen shows, and keep thousands of curves small.
        decimals = max(0, 4 - len(str(int(capacity))))
        values = np.round(self.values[:, k].astype(np.float64) * capacity, decimals).tolist()
        values = [value if there else None for value, there in zip(values, self.present[:, k].tolist(), strict=True)]
        return {"channel": self.channels[k], "unit": self.units[k].strip(), "capacity": capacity, "values": values}
