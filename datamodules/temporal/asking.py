"""Which question is asked of a timeline, so that nothing but the timeline tells the answer.

What decides an answer's class is drawn first, apart from everything that the question says; then a curve is looked for
that agrees with it. So the classes come in equal parts, and whoever sees the question alone is at chance.
"""

from typing import NamedTuple

import numpy as np

from datamodules.temporal import facts as true
from datamodules.temporal.channels import Format, Scale
from datamodules.temporal.facts import Direction, Facts, Levels, Present, Task, Verdict
from datamodules.temporal.patterns import between, integer

_DIRECTIONS, _VERDICTS = tuple(Direction), tuple(Verdict)
_SEVERAL = 4  # steps of a read-out that asks for more than one


class Wish(NamedTuple):
    """What is to be asked, and the class that the answer is to have."""

    task: Task
    direction: Direction | None = None
    verdict: Verdict | None = None
    requirement: int = 0  # levels
    late: bool = False  # whether a minimum at the first sample will not do
    detail: bool = False  # pace, duration; full format only
    several: bool = False  # steps at once


def wish(random: np.random.Generator, task: Task, format: Format, top: int) -> Wish:
    """Draws everything that does not depend on the curve."""
    detail = format == Format.FULL
    if task == Task.TREND:
        return Wish(task, direction=_DIRECTIONS[integer(random, 0, 2)], detail=detail)
    if task == Task.FEASIBILITY:
        requirement = min(max(round(between(random, 0.05, 0.95) * top), 1), top)
        return Wish(task, verdict=_VERDICTS[integer(random, 0, 2)], requirement=requirement)
    if task == Task.BOTTLENECK:
        return Wish(task, late=random.random() < 0.9, detail=detail and random.random() < 0.5)
    return Wish(task, several=random.random() < 0.5)


def agrees(wish: Wish, levels: Levels, present: Present, top: int) -> bool:
    """Whether a curve has the class that was wished for."""
    if wish.task == Task.TREND:
        return true.direction(*true.ends(levels, present), top) == wish.direction
    if wish.task == Task.FEASIBILITY:
        return true.verdict_of(levels[present], wish.requirement) == wish.verdict
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
        return true.feasibility(channel, scale, levels, present, wish.requirement)
    steps = np.flatnonzero(present)
    count = min(_SEVERAL, len(steps)) if wish.several else 1
    chosen = random.permutation(steps)[:count]
    return true.readout(channel, scale, levels, tuple(sorted(map(int, chosen))))
