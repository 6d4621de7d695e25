"""What is true of a timeline, computed from the levels that are shown and from nothing else.

Questions, answers and grades all come from one `Facts` object, so they cannot contradict each other or the curve.
"""

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.channels import Scale

STABLE = 20  # a change of less than one part in STABLE of the capacity is none
Levels = NDArray[np.int64]
Present = NDArray[np.bool_]


class Task(str, Enum):
    """What a question is about."""

    TREND = "trend"
    BOTTLENECK = "bottleneck"
    FEASIBILITY = "feasibility"
    READOUT = "readout"


class Direction(str, Enum):
    """A trend's class."""

    RISING = "rising"
    FALLING = "falling"
    STABLE = "stable"


class Pace(str, Enum):
    """How fast a trend is, in shares of the capacity per second."""

    FAST = "fast"  # a tenth or more
    MODERATE = "moderate"
    SLOW = "slow"  # less than three hundredths


class Verdict(str, Enum):
    """When a task can start."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True)
class Facts:
    """A question's truth. Values are in the shown unit (percents, cores, GB), times are numbers of steps from 0.

    What a task does not ask for is None.

    Args:
        capacity: of the channel.
        steps: length of the timeline.
        requirement: feasibility, asked: what is needed.
        times: read-out, asked: steps.
        direction: trend: rising or falling if `end` is one twentieth of the capacity or more above or below `start`.
        pace: trend, where asked and not stable.
        start: trend: mean of the first tenth of the present samples.
        end: trend: mean of the last tenth.
        value: bottleneck: the minimum. Feasibility: what is available now, at `time`, or at most.
        time: bottleneck: the first step with the minimum. Feasibility later: the first step with enough.
        lasts: bottleneck, where asked: steps from `time` on that stay within a twentieth of the capacity of it.
        verdict: feasibility.
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
    verdict: Verdict | None = None
    values: tuple[float, ...] | None = None

    def asked(self) -> dict[str, Any]:
        """What the question says."""
        return self._those(("channel", "capacity", "steps", "requirement", "times"))

    def answered(self) -> dict[str, Any]:
        """What only the curve can tell."""
        return self._those(("direction", "pace", "start", "end", "value", "time", "lasts", "verdict", "values"))

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON, without what is None."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
            if value is not None
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Facts":
        """The facts that `as_record` wrote."""
        kinds = {"task": Task, "direction": Direction, "pace": Pace, "verdict": Verdict}
        kinds |= {"times": tuple, "values": tuple}
        return cls(**{name: kinds[name](value) if name in kinds else value for name, value in record.items()})

    def _those(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def trend(channel: str, scale: Scale, step_ms: int, levels: Levels, present: Present, how_fast: bool) -> Facts:
    """Where a channel goes from its first tenth to its last."""
    start, end = ends(levels, present)
    way, pace = direction(start, end, scale.top), None
    if how_fast and way != Direction.STABLE:
        rate = abs(end - start) / scale.top / (len(levels) * step_ms / 1000)
        pace = Pace.FAST if rate >= 0.1 else Pace.MODERATE if rate >= 0.03 else Pace.SLOW
    shown = {"start": scale.value(start), "end": scale.value(end)}
    return Facts(Task.TREND, channel, scale.value(scale.top), len(levels), direction=way, pace=pace, **shown)


def ends(levels: Levels, present: Present) -> tuple[int, int]:
    """Mean level of the first and of the last tenth of the present samples, rounded half up."""
    there = levels[present]
    count = max(1, len(there) // 10)
    return tuple((2 * int(part.sum()) + count) // (2 * count) for part in (there[:count], there[-count:]))


def direction(start: int, end: int, top: int) -> Direction:
    """The class of a change from one level to another."""
    if STABLE * abs(end - start) < top:
        return Direction.STABLE
    return Direction.RISING if end > start else Direction.FALLING


def bottleneck(channel: str, scale: Scale, levels: Levels, present: Present, how_long: bool) -> Facts:
    """The least that is available, when, and how long it stays about so."""
    steps = np.flatnonzero(present)
    there = levels[steps]
    first = int(there.argmin())
    lowest = int(there[first])
    lasts = None
    if how_long:
        above = np.flatnonzero(STABLE * (there[first:] - lowest) > scale.top)
        last = first + (int(above[0]) if len(above) else len(there) - first) - 1
        lasts = int(steps[last] - steps[first]) + 1
    shown = {"value": scale.value(lowest), "time": int(steps[first]), "lasts": lasts}
    return Facts(Task.BOTTLENECK, channel, scale.value(scale.top), len(levels), **shown)


def feasibility(channel: str, scale: Scale, levels: Levels, present: Present, requirement: int) -> Facts:
    """When a task that needs `requirement` levels can start."""
    steps = np.flatnonzero(present)
    there = levels[steps]
    verdict = verdict_of(there, requirement)
    time = None
    if verdict == Verdict.NEVER:
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
        time=time if verdict == Verdict.LATER else None,
        verdict=verdict,
    )


def verdict_of(there: Levels, requirement: int) -> Verdict:
    """The verdict on the present samples of a channel; "now" is the first of them."""
    if there[0] >= requirement:
        return Verdict.NOW
    return Verdict.LATER if there.max() >= requirement else Verdict.NEVER


def readout(channel: str, scale: Scale, levels: Levels, times: tuple[int, ...]) -> Facts:
    """The values at some steps, which must be present."""
    values = tuple(scale.value(levels[time]) for time in times)
    return Facts(Task.READOUT, channel, scale.value(scale.top), len(levels), times=times, values=values)
