"""Computes facts about a timeline from the written levels only.

Questions, answers and grades use the same `Facts` object, so they cannot contradict each other or the curve.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.timelines.channels import Scale

STABLE = 20  # a change below capacity / STABLE counts as stable
Levels = NDArray[np.int64]
Present = NDArray[np.bool_]


class Task(str, Enum):
    """Subject of a question."""

    TREND = "trend"
    BOTTLENECK = "bottleneck"
    FEASIBILITY = "feasibility"
    READOUT = "readout"


class Direction(str, Enum):
    """Class of a trend."""

    RISING = "rising"
    FALLING = "falling"
    STABLE = "stable"


class Pace(str, Enum):
    """Speed of a trend, in shares of the capacity per second."""

    FAST = "fast"  # 0.1 or more
    MODERATE = "moderate"
    SLOW = "slow"  # below 0.03


class StartTime(str, Enum):
    """When a task can start."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True)
class Facts:
    """Ground truth of a question.

    Values are in the written unit (percent, cores, GB), times are numbers of steps from 0.

    Slots that do not belong to a task are None.

    Args:
        task: task of the question.
        channel: key of the channel.
        capacity: capacity of the channel.
        steps: length of the timeline.
        requirement: feasibility, in the question: the required amount.
        times: read-out, in the question: the steps.
        direction: trend: rising or falling if `end` is at least one twentieth of the capacity above or below `start`.
        pace: trend, if queried and not stable.
        start: trend: mean of the first tenth of the present samples.
        end: trend: mean of the last tenth.
        value: bottleneck: the minimum. Feasibility: the amount available now, at `time`, or at most.
        time: bottleneck: first step with the minimum. Feasibility later: first step with enough.
        lasts: bottleneck, if queried: steps from `time` on that stay within one twentieth of the capacity of the
            minimum.
        verdict: feasibility: when the task can start.
        values: read-out: the values at `times`.
    """

    task: Task
    channel: str
    capacity: float
    steps: int
    requirement: float | None = None
    times: tuple[int, ...] | None = None
    direction: Direction | None = None
    pace: Pace | None = None
    start: float | None = None
    end: float | None = None
    value: float | None = None
    time: int | None = None
    lasts: int | None = None
    verdict: StartTime | None = None
    values: tuple[float, ...] | None = None

    def question_slots(self) -> dict[str, Any]:
        """Return the slots that the question states."""
        return self._select(("channel", "capacity", "steps", "requirement", "times"))

    def answer_slots(self) -> dict[str, Any]:
        """Return the slots that only the curve determines."""
        return self._select(("direction", "pace", "start", "end", "value", "time", "lasts", "verdict", "values"))

    def as_record(self) -> dict[str, Any]:
        """Return plain values for JSON, without slots that are None."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
            if value is not None
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Facts":
        """Return the facts of a record that `as_record` returned."""
        kinds: dict[str, Callable[[Any], Any]] = {
            "task": Task, "direction": Direction, "pace": Pace, "verdict": StartTime, "times": tuple, "values": tuple,
        }  # fmt: skip
        return cls(**{name: kinds[name](value) if name in kinds else value for name, value in record.items()})

    def _select(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def trend(channel: str, scale: Scale, step_ms: int, levels: Levels, present: Present, how_fast: bool) -> Facts:
    """Compute the facts of a trend from the first to the last tenth of the samples."""
    start, end = ends(levels, present)
    way, pace = direction(start, end, scale.top), None
    if how_fast and way != Direction.STABLE:
        rate = abs(end - start) / scale.top / (len(levels) * step_ms / 1000)
        pace = Pace.FAST if rate >= 0.1 else Pace.MODERATE if rate >= 0.03 else Pace.SLOW
    return Facts(
        Task.TREND,
        channel,
        scale.value(scale.top),
        len(levels),
        direction=way,
        pace=pace,
        start=scale.value(start),
        end=scale.value(end),
    )


def ends(levels: Levels, present: Present) -> tuple[int, int]:
    """Compute the mean level of the first and of the last tenth of the present samples, rounded half up."""
    there = levels[present]
    count = max(1, len(there) // 10)
    # Integer arithmetic, so that a half is rounded up exactly.
    first, last = ((2 * int(part.sum()) + count) // (2 * count) for part in (there[:count], there[-count:]))
    return first, last


def direction(start: int, end: int, top: int) -> Direction:
    """Return the class of a change from one level to another."""
    if STABLE * abs(end - start) < top:
        return Direction.STABLE
    return Direction.RISING if end > start else Direction.FALLING


def bottleneck(channel: str, scale: Scale, levels: Levels, present: Present, how_long: bool) -> Facts:
    """Compute the facts of the minimum: its value, its time, and how long the level stays close to it."""
    steps = np.flatnonzero(present)
    there = levels[steps]
    first = int(there.argmin())
    lowest = int(there[first])
    lasts = None
    if how_long:
        # Compared in integers, as in `direction`, so that no rounding decides a border case.
        above = np.flatnonzero(STABLE * (there[first:] - lowest) > scale.top)
        last = first + (int(above[0]) if len(above) else len(there) - first) - 1
        lasts = int(steps[last] - steps[first]) + 1
    return Facts(
        Task.BOTTLENECK,
        channel,
        scale.value(scale.top),
        len(levels),
        value=scale.value(lowest),
        time=int(steps[first]),
        lasts=lasts,
    )


def feasibility(channel: str, scale: Scale, levels: Levels, present: Present, requirement: int) -> Facts:
    """Compute when a task that needs `requirement` levels can start."""
    steps = np.flatnonzero(present)
    there = levels[steps]
    verdict = verdict_of(there, requirement)
    time = None
    if verdict == StartTime.NEVER:
        level = there.max()
    else:
        first = int((there >= requirement).argmax())
        level, time = there[first], int(steps[first])
    return Facts(
        Task.FEASIBILITY,
        channel,
        scale.value(scale.top),
        len(levels),
        requirement=scale.value(requirement),
        value=scale.value(level),
        time=time if verdict == StartTime.LATER else None,
        verdict=verdict,
    )


def verdict_of(there: Levels, requirement: int) -> StartTime:
    """Return the verdict for the present samples of a channel; "now" is the first of them."""
    if there[0] >= requirement:
        return StartTime.NOW
    return StartTime.LATER if there.max() >= requirement else StartTime.NEVER


def readout(channel: str, scale: Scale, levels: Levels, times: tuple[int, ...]) -> Facts:
    """Return the facts of the values at some steps, which must be present."""
    values = tuple(scale.value(levels[time]) for time in times)
    return Facts(Task.READOUT, channel, scale.value(scale.top), len(levels), times=times, values=values)
