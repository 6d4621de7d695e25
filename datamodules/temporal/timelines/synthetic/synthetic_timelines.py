"""Generates questions about synthetic timelines; a sample is a pure function of (seed, split, epoch, index)."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.channels import CHANNELS, KEYS, Channel, Format, Scale
from datamodules.temporal.timelines.synthetic.curves import (
    MIN_STEPS,
    Column,
    Job,
    check_physics,
    draw_column,
    draw_job,
    draw_present,
)
from datamodules.temporal.timelines.synthetic.question_sampler import (
    QuestionSpec,
    construct_matching_column,
    draw_spec,
    matches,
)
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample, build_sample
from datamodules.temporal.timelines.text.facts import Present, Task
from datamodules.temporal.timelines.text.number_format import Notation
from engine.determinism.scalar_draws import integer
from engine.determinism.stateless_rng import hash_bits
from engine.number_check import check_number, check_numbers

GENERATOR_VERSION = 1
"""Incremented by every change of the generated samples; caches of another version are refused."""

_TRIES = 8  # curves that are drawn before a matching column is constructed
_STREAM = 0x7E3A  # hash key of this generator


@dataclass(frozen=True)
class SyntheticTimelines:
    """Realistic timelines of machines, and questions about them.

    Args:
        seed: seed of the samples.
        format: `tiny`: integer percent, numbers of steps, one template; `full`: physical units, several templates.
        min_steps: minimum length of a timeline.
        max_steps: maximum length of a timeline.
        step_ms: duration of a step in milliseconds.
        task_mix: share of each task (trend, bottleneck, feasibility, readout), in any unit; a missing task has no
            share.
        noise: maximum standard deviation of the noise, in shares of the capacity.
        drop_probability: probability that a channel has one to three short drops.
        pod_share: probability that a channel without a job resembles a real pod (flat, saturated, square wave, bursts)
            instead of the simple patterns (linear, exponential, sinusoidal, step, plateau).
        job_share: probability that one job changes all channels of a timeline together.
        missing_probability: probability that samples of a channel are missing; in one of five cases all of them are.
        alone_probability: probability that only the queried channel was measured.
        series_position: order of question and series.
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
        if not MIN_STEPS <= self.min_steps <= self.max_steps:
            raise ValueError(
                f"min_steps and max_steps: found {self.min_steps} and {self.max_steps}, expected {MIN_STEPS} <= "
                "min_steps <= max_steps"
            )
        check_number("step_ms", self.step_ms, at_least=1)
        check_number("noise", self.noise, at_least=0, at_most=0.15)
        probabilities = ("drop_probability", "pod_share", "job_share", "missing_probability", "alone_probability")
        check_numbers("", {name: getattr(self, name) for name in probabilities}, at_least=0, at_most=1)
        unknown = set(self.task_mix) - {task.value for task in Task}
        if unknown or min(self.task_mix.values(), default=0) < 0 or sum(self.task_mix.values()) <= 0:
            raise ValueError(
                f"task_mix: found {self.task_mix}, expected shares of 0 or more of "
                f"{', '.join(task.value for task in Task)}, and one above 0"
            )

    @cached_property
    def notation(self) -> Notation:
        """Notation of the texts."""
        return Notation(Format(self.format), self.step_ms)

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """Return a sample.

        Raises:
            PhysicsError: a curve is physically impossible, which is a bug of the synthesis; names the sample's
                coordinates.
        """
        key = int(hash_bits(self.seed, _STREAM, GENERATOR_VERSION, split, epoch, index))
        random = np.random.Generator(np.random.Philox(key=key))
        steps = integer(random, self.min_steps, self.max_steps)
        queried = integer(random, 0, len(CHANNELS) - 1)
        capacities = tuple(channel.capacities[int(len(channel.capacities) * random.random())] for channel in CHANNELS)
        spec = draw_spec(random, self.task(random.random()), self.notation.format)
        present = self._draw_present(random, steps, queried)
        scale = Scale.for_channel(CHANNELS[queried], self.notation.format, capacities[queried])
        columns = self._columns(random, steps, queried, spec, scale, present[:, queried])
        check_physics(columns, KEYS, f"sample (seed {self.seed}, {split!r}, epoch {epoch}, index {index})")
        shares = np.stack([column.shares for column in columns], 1)
        return build_sample(
            random=random,
            spec=spec,
            channel=queried,
            shares=shares,
            present=present,
            capacities=capacities,
            notation=self.notation,
            series_position=self.series_position,
        )

    @cached_property
    def _cumulative_shares(self) -> list[tuple[Task, float]]:
        """Each task with its cumulative share."""
        tasks = [task for task in Task if self.task_mix.get(task.value)]
        shares = np.cumsum([self.task_mix[task.value] for task in tasks])
        return list(zip(tasks, (shares / shares[-1]).tolist(), strict=True))

    def task(self, uniform: float) -> Task:
        """Return the task for a uniform number in [0, 1)."""
        return next(task for task, until in self._cumulative_shares if uniform < until)

    def _draw_present(self, random: np.random.Generator, steps: int, queried: int) -> Present:
        present = np.ones((steps, len(CHANNELS)), np.bool_)
        if self.alone_probability and random.random() < self.alone_probability:
            present[:] = np.arange(len(CHANNELS)) == queried
            return present
        for position in range(len(CHANNELS)):
            if random.random() < self.missing_probability:
                if position != queried and random.random() < 0.2:
                    present[:, position] = False
                else:
                    present[:, position] = draw_present(random, steps)
        return present

    def _columns(
        self, random: np.random.Generator, steps: int, queried: int, spec: QuestionSpec, scale: Scale, present: Present
    ) -> list[Column]:
        """Draw all channels; the queried channel matches the specification."""
        for _ in range(_TRIES):
            job = draw_job(random, steps) if random.random() < self.job_share else None
            column = self._column(random, steps, CHANNELS[queried], job)
            if matches(spec, scale.levels(column.shares), present, scale.top):
                break
            # Reversing time turns a falling curve into a rising one, which may match.
            if matches(spec, scale.levels(column.shares[::-1]), present, scale.top):
                column, job = column.backwards(), job and job.backwards()
                break
        else:
            if spec.task in (Task.TREND, Task.FEASIBILITY):
                # A read-out accepts any column, and a bottleneck may keep a minimum at the first sample.
                column = construct_matching_column(random, spec, column, scale, present)
        return [
            column if position == queried else self._column(random, steps, channel, job)
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
