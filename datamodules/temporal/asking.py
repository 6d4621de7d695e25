"""Which question is asked of a timeline, so that nothing but the timeline tells the answer.

What decides an answer's class is drawn first, apart from everything that the question says; then a curve is looked for
that agrees with it. So the classes come in equal parts, and whoever sees the question alone is at chance.
"""

from typing import NamedTuple

import numpy as np

from datamodules.temporal import facts as true
from datamodules.temporal.channels import Format, Scale
from datamodules.temporal.curves import Column
from datamodules.temporal.facts import Direction, Facts, Levels, Present, Task, Verdict
from datamodules.temporal.patterns import between, clock, integer

_DIRECTIONS, _VERDICTS = tuple(Direction), tuple(Verdict)
_SEVERAL = 4  # steps of a read-out that asks for more than one


class Wish(NamedTuple):
    """What is to be asked, and the class that the answer is to have."""

    task: Task
    direction: Direction | None = None
    verdict: Verdict | None = None
    share: float = 0.0  # of the capacity that is required
    late: bool = False  # whether a minimum at the first sample will not do
    detail: bool = False  # pace, duration; full format only
    several: bool = False  # steps at once

    def requirement(self, top: int) -> int:
        """Levels that are required, of `top`."""
        return min(max(round(self.share * top), 1), top)


def wish(random: np.random.Generator, task: Task, format: Format) -> Wish:
    """Draws everything that does not depend on the curve."""
    detail = format == Format.FULL
    if task == Task.TREND:
        return Wish(task, direction=_DIRECTIONS[integer(random, 0, 2)], detail=detail)
    if task == Task.FEASIBILITY:
        share = between(random, 0.05, 0.95)
        return Wish(task, verdict=_VERDICTS[integer(random, 0, 2)], share=share)
    if task == Task.BOTTLENECK:
        return Wish(task, late=random.random() < 0.9, detail=detail and random.random() < 0.5)
    return Wish(task, several=random.random() < 0.5)


def agrees(wish: Wish, levels: Levels, present: Present, top: int) -> bool:
    """Whether a curve has the class that was wished for."""
    if wish.task == Task.TREND:
        return true.direction(*true.ends(levels, present), top) == wish.direction
    if wish.task == Task.FEASIBILITY:
        return true.verdict_of(levels[present], wish.requirement(top)) == wish.verdict
    if wish.task == Task.BOTTLENECK and wish.late:
        return int(levels[present].argmin()) > 0
    return True


def ask(
    random: np.random.Generator,
    wish: Wish,
    channel: str,
    scale: Scale,
    step_ms: int,
    levels: Levels,
    present: Present,
) -> Facts:
    """The facts that the question is about."""
    if wish.task == Task.TREND:
        return true.trend(channel, scale, step_ms, levels, present, wish.detail)
    if wish.task == Task.BOTTLENECK:
        return true.bottleneck(channel, scale, levels, present, wish.detail)
    if wish.task == Task.FEASIBILITY:
        return true.feasibility(channel, scale, levels, present, wish.requirement(scale.top))
    steps = np.flatnonzero(present)
    count = min(_SEVERAL, len(steps)) if wish.several else 1
    chosen = random.permutation(steps)[:count]
    return true.readout(channel, scale, levels, tuple(sorted(map(int, chosen))))


def made_to_measure(random: np.random.Generator, wish: Wish, column: Column, scale: Scale, present: Present) -> Column:
    """A column that agrees with the wish where none of several tries did; rare, and as simple as it can be."""
    steps, top = len(present), scale.top
    still = np.zeros(steps, np.bool_)
    if wish.direction == Direction.STABLE:
        return Column(np.full(steps, random.random()), still, 0.0)
    if wish.direction is not None:
        low, high = between(random, 0.0, 0.5), between(random, 0.7, 1.0)
        rising = low + (high - low) * clock(steps)
        return Column(rising if wish.direction == Direction.RISING else rising[::-1], still, 0.0)
    required = wish.requirement(top)
    if wish.verdict == Verdict.NEVER:
        # The same shape, lower.
        highest = int(scale.levels(column.shares[present]).max())
        return column._replace(shares=column.shares * (between(random, 0.2, 1.0) * (required - 1) / highest))
    if wish.verdict == Verdict.NOW:
        # The same shape, its head room made smaller, so that it begins with enough.
        first = column.shares[present][0]
        goal = between(random, required, top) / top
        room = (1 - goal) / max(1 - first, 1e-9)
        return column._replace(shares=1 - (1 - column.shares) * min(room, 1.0))
    # Too little, then enough from some sample on.
    there = np.flatnonzero(present)
    change = int(there[integer(random, 1, len(there) - 1)])
    shares = np.full(steps, integer(random, 0, required - 1) / top)
    shares[change:] = integer(random, required, top) / top
    still[change] = True
    return Column(shares, still, 0.0)
