"""Samples questions such that only the timeline reveals the answer.

The class of the answer is drawn first, independently of everything in the question, and then a curve of this class is
searched for. The classes are therefore balanced, and the question alone gives no better than chance.
"""

from typing import NamedTuple

import numpy as np

from datamodules.temporal.timelines.channels import Format, Scale
from datamodules.temporal.timelines.synthetic.curves import Column
from datamodules.temporal.timelines.synthetic.patterns import clock
from datamodules.temporal.timelines.text import facts
from datamodules.temporal.timelines.text.facts import Direction, Facts, Levels, Present, StartTime, Task
from engine.determinism.scalar_draws import between, integer

_DIRECTIONS, _START_TIMES = tuple(Direction), tuple(StartTime)
_SEVERAL = 4  # steps of a read-out of several values


class QuestionSpec(NamedTuple):
    """A question to construct, and the class of its answer."""

    task: Task
    direction: Direction | None = None
    verdict: StartTime | None = None
    share: float = 0.0  # required share of the capacity
    late: bool = False  # whether the minimum must not be at the first sample
    detail: bool = False  # whether pace or duration is queried; full format only
    several: bool = False  # whether several steps are queried

    def requirement(self, top: int) -> int:
        """Return the required levels, out of `top`."""
        return min(max(round(self.share * top), 1), top)


def draw_spec(random: np.random.Generator, task: Task, format: Format) -> QuestionSpec:
    """Draw everything that does not depend on the curve."""
    detail = format == Format.FULL
    if task == Task.TREND:
        return QuestionSpec(task, direction=_DIRECTIONS[integer(random, 0, 2)], detail=detail)
    if task == Task.FEASIBILITY:
        share = between(random, 0.05, 0.95)
        return QuestionSpec(task, verdict=_START_TIMES[integer(random, 0, 2)], share=share)
    if task == Task.BOTTLENECK:
        return QuestionSpec(task, late=random.random() < 0.9, detail=detail and random.random() < 0.5)
    return QuestionSpec(task, several=random.random() < 0.5)


def matches(spec: QuestionSpec, levels: Levels, present: Present, top: int) -> bool:
    """Return whether a curve has the class of the specification."""
    if spec.task == Task.TREND:
        return facts.direction(*facts.ends(levels, present), top) == spec.direction
    if spec.task == Task.FEASIBILITY:
        return facts.verdict_of(levels[present], spec.requirement(top)) == spec.verdict
    if spec.task == Task.BOTTLENECK and spec.late:
        return int(levels[present].argmin()) > 0
    return True


def compute_facts(
    random: np.random.Generator,
    spec: QuestionSpec,
    channel: str,
    scale: Scale,
    step_ms: int,
    levels: Levels,
    present: Present,
) -> Facts:
    """Compute the facts of the question."""
    if spec.task == Task.TREND:
        return facts.trend(channel, scale, step_ms, levels, present, spec.detail)
    if spec.task == Task.BOTTLENECK:
        return facts.bottleneck(channel, scale, levels, present, spec.detail)
    if spec.task == Task.FEASIBILITY:
        return facts.feasibility(channel, scale, levels, present, spec.requirement(scale.top))
    steps = np.flatnonzero(present)
    count = min(_SEVERAL, len(steps)) if spec.several else 1
    # Only present steps are asked for.
    steps_read = random.permutation(steps)[:count]
    return facts.readout(channel, scale, levels, tuple(sorted(map(int, steps_read))))


def construct_matching_column(
    random: np.random.Generator, spec: QuestionSpec, column: Column, scale: Scale, present: Present
) -> Column:
    """Construct a simple column that matches the specification; for the rare case that no drawn column does."""
    steps, top = len(present), scale.top
    jumps = np.zeros(steps, np.bool_)
    if spec.direction == Direction.STABLE:
        return Column(np.full(steps, random.random()), jumps, 0.0)
    if spec.direction is not None:
        low, high = between(random, 0.0, 0.5), between(random, 0.7, 1.0)
        rising = low + (high - low) * clock(steps)
        return Column(rising if spec.direction == Direction.RISING else rising[::-1], jumps, 0.0)
    required = spec.requirement(top)
    if spec.verdict == StartTime.NEVER:
        # Scale the shape down.
        highest = int(scale.levels(column.shares[present]).max())
        return column._replace(shares=column.shares * (between(random, 0.2, 1.0) * (required - 1) / highest))
    if spec.verdict == StartTime.NOW:
        # Scale the distance to the capacity down, so that the column begins with enough.
        first = column.shares[present][0]
        goal = between(random, required, top) / top
        room = (1 - goal) / max(1 - first, 1e-9)
        return column._replace(shares=1 - (1 - column.shares) * min(room, 1.0))
    # Too little, then enough from a present sample on.
    measured = np.flatnonzero(present)
    change = int(measured[integer(random, 1, len(measured) - 1)])
    shares = np.full(steps, integer(random, 0, required - 1) / top)
    shares[change:] = integer(random, required, top) / top
    jumps[change] = True
    return Column(shares, jumps, 0.0)
