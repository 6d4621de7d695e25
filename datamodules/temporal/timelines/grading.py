"""Grades an answer, slot by slot.

Only slots that the curve determines are graded: a requirement, a capacity or a time given in the question earns no
points. A missing slot counts as wrong. Values and times are parsed with their units, so 512 of another unit is not 512
GB.

The metrics of the guide (docs/from-the-guides.md) compare numbers by their position in the text, include copied
numbers, and ignore missing numbers.
"""

from typing import Any

from datamodules.temporal.timelines.text.facts import Facts, Task
from datamodules.temporal.timelines.text.number_format import Notation
from datamodules.temporal.timelines.text.question_text import read_answer

MEASURES = (
    "value_within_5_percent",  # of the capacity
    "value_within_1_percent",
    "value_relative_5_percent",  # of the true value; if it is 0, exact
    "time_within_1_step",
    "class_right",  # direction of a trend, or verdict on feasibility
    "pace_right",
    "parsed",  # all slots could be parsed
    "exact",  # all slots are right to the last digit
    "number_closeness",  # ChatTS: 1 - |error| / |truth|, at least 0
)
"""Names of the metrics, the most informative first."""

_NOT_MEASURED = {
    Task.TREND: {"time_within_1_step"},
    Task.BOTTLENECK: {"class_right", "pace_right"},
    Task.FEASIBILITY: {"pace_right"},
    Task.READOUT: {"time_within_1_step", "class_right", "pace_right"},
}
OUTCOMES = MEASURES + tuple(
    f"{task.value}/{name}" for task in Task for name in MEASURES if name not in _NOT_MEASURED[task]
)
"""Names of all outcomes of `grade`: over all tasks, and per task."""

Outcome = tuple[float, float]
"""(points reached, points possible)"""

_VALUES, _TIMES, _CLASSES = ("start", "end", "value"), ("time", "lasts"), ("direction", "verdict")
_SLOTS = (*_VALUES, *_TIMES, *_CLASSES, "pace", "values")


def grade(facts: Facts, text: str, notation: Notation) -> dict[str, Outcome]:
    """Return {outcome: (points reached, points possible)} of an answer, once as `NAME` and once as `TASK/NAME`."""
    found_slots = read_answer(text, notation, facts.channel)
    if found_slots.get("channel", facts.channel) != facts.channel:
        found_slots = {}  # an answer about another channel is wrong in every slot
    truth = facts.answer_slots()
    values = [(truth[slot], found_slots.get(slot)) for slot in _VALUES if slot in truth] + _readings(facts, found_slots)
    times = [(truth[slot], found_slots.get(slot)) for slot in _TIMES if slot in truth]
    classes = [truth[slot] == found_slots.get(slot) for slot in _CLASSES if slot in truth]
    parsed = all(found is not None for _, found in values + times) and all(slot in found_slots for slot in truth)
    # Slots of another task, or values at other times, make an answer inexact.
    surplus = any(slot in found_slots and slot not in truth for slot in _SLOTS)
    surplus = surplus or found_slots.get("times") != facts.times
    right = parsed and not surplus and found_slots.get("channel") == facts.channel
    right = right and all(found == true for true, found in values + times)
    outcomes = {
        "value_within_5_percent": _share(values, 0.05 * facts.capacity),
        "value_within_1_percent": _share(values, 0.01 * facts.capacity),
        "value_relative_5_percent": _points([_near(true, found, 0.05 * abs(true)) for true, found in values]),
        "time_within_1_step": _share(times, 1.0),
        "class_right": _points(classes),
        "pace_right": _points([found_slots.get("pace") == truth["pace"]] if "pace" in truth else []),
        "parsed": _points([parsed]),
        "exact": _points(
            [right and all(truth[slot] == found_slots[slot] for slot in (*_CLASSES, "pace") if slot in truth)]
        ),
        "number_closeness": _points([_closeness(true, found) for true, found in values + times]),
    }
    measured = {name: outcome for name, outcome in outcomes.items() if outcome[1]}
    return measured | {f"{facts.task.value}/{name}": outcome for name, outcome in measured.items()}


def errors(facts: Facts, text: str, notation: Notation) -> tuple[str, ...]:
    """Return the kinds of error of an answer.

    `unreadable`: a slot cannot be parsed; `class`: wrong class; `value`: off by more than 5 % of the capacity; `time`:
    off by more than one step.
    """
    outcomes = grade(facts, text, notation)
    kinds = {"unreadable": "parsed", "class": "class_right", "value": "value_within_5_percent"}
    kinds |= {"time": "time_within_1_step"}
    return tuple(kind for kind, name in kinds.items() if name in outcomes and outcomes[name][0] < outcomes[name][1])


def _readings(facts: Facts, found_slots: dict[str, Any]) -> list[tuple[float, float | None]]:
    """Return the values of a read-out with the answered values at the same times."""
    if facts.times is None or facts.values is None:
        return []
    # A truncated answer may have more times than values.
    found = dict(zip(found_slots.get("times", ()), found_slots.get("values", ()), strict=False))
    return [(value, found.get(time)) for time, value in zip(facts.times, facts.values, strict=True)]


def _share(numbers: list[tuple[float, float | None]], tolerance: float) -> Outcome:
    return _points([_near(true, found, tolerance) for true, found in numbers])


def _near(true: float, found: float | None, tolerance: float) -> bool:
    # A margin of 5e-7, so an error of 0.1 GB is within a limit of 0.1 GB despite floating-point rounding.
    return found is not None and abs(found - true) <= tolerance + 5e-7


def _closeness(true: float, found: float | None) -> float:
    if found is None:
        return 0.0
    if abs(true) < 0.5:  # ChatTS (evaluation/evaluate_qa.py) uses the absolute error of numbers near 0
        return float(abs(found - true) < 0.5)
    return max(0.0, 1 - abs(found - true) / abs(true))


def _points(hits: list[bool] | list[float]) -> Outcome:
    return float(sum(hits)), float(len(hits))
