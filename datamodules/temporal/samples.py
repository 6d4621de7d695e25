"""Questions about synthetic timelines: a sample is a pure function of (seed, split, epoch, index)."""

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.asking import Wish, agrees, ask, made_to_measure, wish
from datamodules.temporal.channels import CHANNELS, KEYS, Channel, Format, Scale
from datamodules.temporal.curves import FEWEST_STEPS, Column, Job, check_physics, draw_column, draw_job, draw_present
from datamodules.temporal.facts import Facts, Present, Task
from datamodules.temporal.notation import Notation
from datamodules.temporal.patterns import integer
from datamodules.temporal.questions import answer, question
from engine.randomness import hash_bits

GENERATOR_VERSION = 1
"""Goes up with every change that gives other samples; caches of another version are refused."""

PLACEHOLDER = "<series>"
"""Where a question's text has the series."""

_TRIES = 8  # curves that are looked at before one is made to the wish's measure
_STREAM = 0x7E3A  # this generator's name beside whatever else hashes the same seed


class Split(IntEnum):
    """Part of the hash, so no two splits draw from the same random numbers."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


SeriesPosition = Literal["question_first", "series_first"]
"""What comes first: the question, so that the series' tokens see what is asked, or the series (the original's)."""


class TimelineSample(NamedTuple):
    """A timeline of T steps and a question about one of its four channels (`channels.CHANNELS`)."""

    values: NDArray[np.float32]  # [T, 4] available share of the capacity as it is shown; 0 where not present
    present: NDArray[np.bool_]  # [T, 4]
    capacities: tuple[float, float, float, float]  # in the channels' units
    units: tuple[str, str, str, str]  # of the shown values
    step_ms: int
    question: str  # with PLACEHOLDER
    answer: str
    facts: Facts


@dataclass(frozen=True)
class Synthesis:
    """Timelines as machines have them, and questions about them.

    Args:
        seed: of everything.
        format: `tiny`: whole percents, numbers of steps, one template; `full`: physical units, several templates.
        min_steps: steps of the shortest timeline.
        max_steps: steps of the longest one.
        step_ms: milliseconds from one step to the next.
        task_mix: share of each task (trend, bottleneck, feasibility, readout), in any unit; a task left out has none.
        noise: largest standard deviation of the noise, in shares of the capacity.
        drop_probability: how likely a channel has one to three short drops.
        pod_share: how likely a channel that no job moves looks like a real pod's (flat, saturated, square wave,
            bursts) instead of the original's patterns (linear, exponential, sinusoidal, step, plateau).
        job_share: how likely one job moves all channels of a timeline together.
        missing_probability: how likely a channel lacks some of its samples; one in five of these lacks them all.
        alone_probability: how likely nothing but the channel that is asked about was measured.
        series_position: what comes first in a question.
    """

    seed: int = 0
    format: Literal["tiny", "full"] = "tiny"
    min_steps: int = 16
    max_steps: int = 48
    step_ms: int = 100
    task_mix: dict[Literal["trend", "bottleneck", "feasibility", "readout"], float] = field(
        default_factory=lambda: {"trend": 0.3, "bottleneck": 0.2, "feasibility": 0.2, "readout": 0.3}
    )
    noise: float = 0.03
    drop_probability: float = 0.2
    pod_share: float = 0.4
    job_share: float = 0.2
    missing_probability: float = 0.1
    alone_probability: float = 0.0
    series_position: Literal["question_first", "series_first"] = "question_first"

    def __post_init__(self) -> None:
        if not FEWEST_STEPS <= self.min_steps <= self.max_steps:
            raise ValueError(
                f"min_steps and max_steps: found {self.min_steps} and {self.max_steps}, expected {FEWEST_STEPS} <= "
                "min_steps <= max_steps"
            )
        if self.step_ms < 1:
            raise ValueError(f"step_ms: found {self.step_ms}, expected 1 or more")
        if not 0 <= self.noise <= 0.15:
            raise ValueError(f"noise: found {self.noise}, expected 0 to 0.15")
        for name in ("drop_probability", "pod_share", "job_share", "missing_probability", "alone_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a probability")
        unknown = set(self.task_mix) - {task.value for task in Task}
        if unknown or min(self.task_mix.values(), default=0) < 0 or sum(self.task_mix.values()) <= 0:
            raise ValueError(
                f"task_mix: found {self.task_mix}, expected shares of 0 or more of "
                f"{', '.join(task.value for task in Task)}, and one above 0"
            )

    @cached_property
    def notation(self) -> Notation:
        """What the texts are written in."""
        return Notation(Format(self.format), self.step_ms)

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """One sample.

        Raises:
            PhysicsError: a curve that no machine can have, with the sample's coordinates: a defect of the synthesis.
        """
        key = int(hash_bits(self.seed, _STREAM, GENERATOR_VERSION, split, epoch, index))
        random = np.random.Generator(np.random.Philox(key=key))
        steps = integer(random, self.min_steps, self.max_steps)
        asked = integer(random, 0, len(CHANNELS) - 1)
        capacities = tuple(channel.capacities[int(len(channel.capacities) * random.random())] for channel in CHANNELS)
        wished = wish(random, self.task(random.random()), self.notation.format)
        present = self._present(random, steps, asked)
        scale = Scale.of(CHANNELS[asked], self.notation.format, capacities[asked])
        columns = self._columns(random, steps, asked, wished, scale, present[:, asked])
        check_physics(columns, KEYS, f"sample (seed {self.seed}, {split!r}, epoch {epoch}, index {index})")
        shares = np.stack([column.shares for column in columns], 1)
        return compose(random, wished, asked, shares, present, capacities, self.notation, self.series_position)

    @cached_property
    def _until(self) -> list[tuple[Task, float]]:
        """Each task with the share of it and of those before it."""
        tasks = [task for task in Task if self.task_mix.get(task.value)]
        shares = np.cumsum([self.task_mix[task.value] for task in tasks])
        return list(zip(tasks, (shares / shares[-1]).tolist(), strict=True))

    def task(self, uniform: float) -> Task:
        """The task at a place between 0 and 1 of the mix."""
        return next(task for task, until in self._until if uniform < until)

    def _present(self, random: np.random.Generator, steps: int, asked: int) -> Present:
        present = np.ones((steps, len(CHANNELS)), np.bool_)
        if self.alone_probability and random.random() < self.alone_probability:
            present[:] = np.arange(len(CHANNELS)) == asked
            return present
        for position in range(len(CHANNELS)):
            if random.random() < self.missing_probability:
                if position != asked and random.random() < 0.2:
                    present[:, position] = False
                else:
                    present[:, position] = draw_present(random, steps)
        return present

    def _columns(
        self, random: np.random.Generator, steps: int, asked: int, wished: Wish, scale: Scale, present: Present
    ) -> list[Column]:
        """All channels; the one that is asked about agrees with the wish."""
        for _ in range(_TRIES):
            job = draw_job(random, steps) if random.random() < self.job_share else None
            column = self._column(random, steps, CHANNELS[asked], job)
            if agrees(wished, scale.levels(column.shares), present, scale.top):
                break
            # What falls rises when time runs backwards, and what begins with enough may end with it.
            if agrees(wished, scale.levels(column.shares[::-1]), present, scale.top):
                column, job = column.backwards(), job and job.backwards()
                break
        else:
            if wished.task in (Task.TREND, Task.FEASIBILITY):
                column = made_to_measure(random, wished, column, scale, present)
        return [
            column if position == asked else self._column(random, steps, channel, job)
            for position, channel in enumerate(CHANNELS)
        ]

    def _column(self, random: np.random.Generator, steps: int, channel: Channel, job: Job | None) -> Column:
        return draw_column(
            random,
            steps,
            channel,
            job,
            noise=self.noise,
            drop_probability=self.drop_probability,
            pod_share=self.pod_share,
        )


def compose(
    random: np.random.Generator,
    wished: Wish,
    asked: int,
    shares: NDArray[np.float64],
    present: Present,
    capacities: tuple[float, ...],
    notation: Notation,
    series_position: SeriesPosition,
) -> TimelineSample:
    """The question that was wished for, about the curves as they are shown.

    Args:
        random: chooses among templates and, in a read-out, the steps.
        wished: what to ask.
        asked: the number of the channel.
        shares: [T, 4] available share of the capacity; any number where not present.
        present: [T, 4].
        capacities: in the channels' units.
        notation: what the texts are written in.
        series_position: what comes first.
    """
    scales = [
        Scale.of(channel, notation.format, capacity) for channel, capacity in zip(CHANNELS, capacities, strict=True)
    ]
    tops = np.array([scale.top for scale in scales])
    levels = np.floor(shares * tops + 0.5).astype(np.int64)
    there = present[:, asked]
    facts = ask(random, wished, KEYS[asked], scales[asked], notation.step_ms, levels[:, asked], there)
    said = question(facts, notation, lambda count: int(count * random.random()))
    return TimelineSample(
        values=np.where(present, levels / tops, 0.0).astype(np.float32),
        present=present,
        capacities=tuple(map(float, capacities)),
        units=tuple(scale.unit for scale in scales),
        step_ms=notation.step_ms,
        question=place(said, series_position),
        answer=answer(facts, notation, lambda count: int(count * random.random())),
        facts=facts,
    )


def place(said: str, position: SeriesPosition) -> str:
    """A question's text with the series in its place."""
    parts = (said, PLACEHOLDER) if position == "question_first" else (PLACEHOLDER, said)
    return "\n".join(parts)
