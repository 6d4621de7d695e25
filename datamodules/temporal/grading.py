"""How right an answer is, slot by slot.

Only what the curve alone can tell is graded: a requirement, a capacity or a time that the question says already earns
nothing. What an answer lacks counts as wrong. Values and times are read with their units, so 512 of something else is
not 512 GB.

The original's measures count numbers by their place in the text, copied ones too, and forgive those that are missing.
"""

from typing import Any

from datamodules.temporal.facts import Facts, Task
from datamodules.temporal.notation import Notation
from datamodules.temporal.questions import read_answer

MEASURES = (
    "value_within_5_percent",  # of the capacity: five points
    "value_within_1_percent",
    "value_relative_5_percent",  # of the true value; of 0 only 0
    "time_within_1_step",
    "class_right",  # the direction of a trend, the verdict on feasibility
    "pace_right",
    "parsed",  # all that was asked for could be read
    "exact",  # and is right to the last digit
    "number_closeness",  # ChatTS: 1 - |error| / |truth|, at least 0
)
"""What is measured, the measure that says most first."""

_LACKS = {
    Task.TREND: {"time_within_1_step"},
    Task.BOTTLENECK: {"class_right", "pace_right"},
    Task.FEASIBILITY: {"pace_right"},
    Task.READOUT: {"time_within_1_step", "class_right", "pace_right"},
}
OUTCOMES = MEASURES + tuple(f"{task.value}/{name}" for task in Task for name in MEASURES if name not in _LACKS[task])
"""All names that `grade` may tell: of every task together, and of each."""

Outcome = tuple[float, float]
"""Points reached, points possible."""

_VALUES, _TIMES, _CLASSES = ("start", "end", "value"), ("time", "lasts"), ("direction", "verdict")
_SLOTS = (*_VALUES, *_TIMES, *_CLASSES, "pace", "values")


def grade(facts: Facts, text: str, notation: Notation) -> dict[str, Outcome]:
    """{outcome: (points, of how many)} of an answer, each once by its name and once as `TASK/name`."""
    said = read_answer(text, notation, facts.channel)
    if said.get("channel", facts.channel) != facts.channel:
        said = {}  # what is true of another channel answers nothing
    truth = facts.answered()
    values = [(truth[slot], said.get(slot)) for slot in _VALUES if slot in truth] + _readings(facts, said)
    times = [(truth[slot], said.get(slot)) for slot in _TIMES if slot in truth]
    classes = [truth[slot] == said.get(slot) for slot in _CLASSES if slot in truth]
    parsed = all(found is not None for _, found in values + times) and all(slot in said for slot in truth)
    # What else an answer says, of another task or of a time that nobody asked for, is not part of the right one.
    more = any(slot in said and slot not in truth for slot in _SLOTS) or said.get("times") != facts.times
    right = parsed and not more and said.get("channel") == facts.channel
    right = right and all(found == true for true, found in values + times)
    outcomes = {
        "value_within_5_percent": _share(values, 0.05 * facts.capacity),
        "value_within_1_percent": _share(values, 0.01 * facts.capacity),
        "value_relative_5_percent": _points([_near(true, found, 0.05 * abs(true)) for true, found in values]),
        "time_within_1_step": _share(times, 1.0),
        "class_right": _points(classes),
        "pace_right": _points([said.get("pace") == truth["pace"]] if "pace" in truth else []),
        "parsed": _points([parsed]),
        "exact": _points([right and all(truth[slot] == said[slot] for slot in (*_CLASSES, "pace") if slot in truth)]),
        "number_closeness": _points([_closeness(true, found) for true, found in values + times]),
    }
    asked = {name: outcome for name, outcome in outcomes.items() if outcome[1]}
    return asked | {f"{facts.task.value}/{name}": outcome for name, outcome in asked.items()}


def errors(facts: Facts, text: str, notation: Notation) -> tuple[str, ...]:
    """What is wrong with an answer: `unreadable`, `class`, `value` (more than 5 % of the capacity), `time` (a step)."""
    outcomes = grade(facts, text, notation)
    kinds = {"unreadable": "parsed", "class": "class_right", "value": "value_within_5_percent"}
    kinds |= {"time": "time_within_1_step"}
    return tuple(kind for kind, name in kinds.items() if name in outcomes and outcomes[name][0] < outcomes[name][1])


def _readings(facts: Facts, said: dict[str, Any]) -> list[tuple[float, float | None]]:
    """The values of a read-out with what was said about the same times."""
    if facts.times is None or facts.values is None:
        return []
    found = dict(zip(said.get("times", ()), said.get("values", ()), strict=False))
    return [(value, found.get(time)) for time, value in zip(facts.times, facts.values, strict=True)]


def _share(numbers: list[tuple[float, float | None]], tolerance: float) -> Outcome:
    return _points([_near(true, found, tolerance) for true, found in numbers])


def _near(true: float, found: float | None, tolerance: float) -> bool:
    # Half of a millionth: 0.1 GB beside a limit of 0.1 GB is within it, whatever binary fractions make of either.
    return found is not None and abs(found - true) <= tolerance + 5e-7


def _closeness(true: float, found: float | None) -> float:
    if found is None:
        return 0.0
    if abs(true) < 0.5:  # ChatTS (evaluation/evaluate_qa.py) takes the absolute error of numbers near 0
        return float(abs(found - true) < 0.5)
    return max(0.0, 1 - abs(found - true) / abs(true))


def _points(hits: list[bool] | list[float]) -> Outcome:
    return float(sum(hits)), float(len(hits))
