"""Generates columns of a timeline: a pattern or a job's load, with noise, drops, quantization and gaps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.timelines.channels import Channel
from datamodules.temporal.timelines.synthetic.patterns import POD, SEED, Values
from engine.determinism.scalar_draws import between, integer

SMOOTH_CHANGE = 0.3
"""Maximum change of a pattern per step outside of jumps, in shares of the capacity."""

NOISE_LIMIT = 3.0  # standard deviations
MIN_STEPS = 10  # with fewer steps the exponential pattern exceeds SMOOTH_CHANGE


class Column(NamedTuple):
    """A channel of T steps."""

    shares: Values  # [T] share of the capacity, 0 to 1
    jumps: NDArray[np.bool_]  # [T] whether the change from the previous step may have any size
    noise: float  # standard deviation

    def backwards(self) -> "Column":
        """Return the column with reversed time."""
        # jumps[t] belongs to the change from t - 1 to t, so its reversal is shifted by a step.
        return Column(self.shares[::-1], np.append(False, self.jumps[:0:-1]), self.noise)


class Job(NamedTuple):
    """A job on the machine, which changes all its channels together."""

    use: Values  # [T] used share of the compute, 0 to 1
    held: Values  # [T] used share of the memory, 0 to 1
    use_jumps: list[int]
    held_jumps: list[int]

    def backwards(self) -> "Job":
        """Return the job with reversed time."""
        jumps = ([len(self.use) - jump for jump in jumps] for jumps in (self.use_jumps, self.held_jumps))
        return Job(self.use[::-1], self.held[::-1], *jumps)


class PhysicsError(ValueError):
    """A curve that is physically impossible. The message names the sample."""


def draw_job(random: np.random.Generator, steps: int) -> Job:
    """Draw a job with random start and end that fills its memory and computes with pauses."""
    start = integer(random, 0, steps // 2)
    end = min(steps, start + integer(random, steps // 4, steps))
    memory, use = np.zeros(steps), np.zeros(steps)
    # A gradual fill takes at least four steps; an immediate allocation is a jump.
    filling = integer(random, 4, max(4, steps // 3)) if random.random() < 0.5 else 1
    memory[start:end] = np.minimum(np.arange(1, end - start + 1) / filling, 1.0)
    use[start:end] = 1.0
    use_jumps = [start, end]
    for _ in range(integer(random, 0, 4)):
        pause = integer(random, start, end - 1)
        until = min(end, pause + integer(random, 1, max(2, steps // 8)))
        use[pause:until] = between(random, 0.0, 0.6)
        use_jumps += [pause, until]
    return Job(use, memory, use_jumps, [start, end] if filling == 1 else [end])


def draw_column(
    random: np.random.Generator,
    steps: int,
    channel: Channel,
    job: Job | None,
    *,
    noise: float,
    drop_probability: float,
    pod_share: float,
) -> Column:
    """Draw a channel: the load of the job, or a pattern of its own (a pod's with probability `pod_share`)."""
    pod = job is not None or random.random() < pod_share
    if job is not None:
        idle = 1.0 if random.random() < 0.5 else between(random, 0.6, 1.0)
        taken, jumps = (job.held, job.held_jumps) if channel.memory else (job.use, job.use_jumps)
        shares = idle * (1 - between(random, 0.2, 1.0) * taken)
    else:
        patterns = POD if pod else SEED
        shares, jumps = patterns[int(len(patterns) * random.random())](random, steps)
        shares = np.minimum(np.maximum(shares, 0.0), 1.0)
    # A job or burst may end at step T; the surplus place takes that jump and is cut off below.
    allowed = np.zeros(steps + 1, np.bool_)
    allowed[jumps] = True
    # The counters of an idle pod are constant; the counters of a busy pod fluctuate slightly.
    deviation = noise * random.random() * ((random.random() < 0.5) * 0.5 if pod else 1.0)
    if deviation:
        jitter = random.standard_normal(steps)
        shares = shares + deviation * np.minimum(np.maximum(jitter, -NOISE_LIMIT), NOISE_LIMIT)
        shares = np.minimum(np.maximum(shares, 0.0), 1.0)
    if random.random() < drop_probability:
        shares = _drop(random, shares, allowed)
    if random.random() < 0.1:
        shares = _coarse(shares, 2 ** integer(random, 2, 5), allowed)
    return Column(shares, allowed[:steps], deviation)


def draw_present(random: np.random.Generator, steps: int) -> NDArray[np.bool_]:
    """Draw the present samples of a channel, bool [T]: some are lost at random or in a run, and most arrive."""
    present = np.ones(steps, np.bool_)
    if random.random() < 0.5:
        present = random.random(steps) >= between(random, 0.02, 0.25)
    else:
        start = integer(random, 0, steps - 1)
        present[start : start + integer(random, 1, max(1, steps // 4))] = False
    # At least 60 % of the samples are present, as in the windows of recorded timelines.
    if 5 * int(present.sum()) < 3 * steps:
        return np.ones(steps, np.bool_)
    return present


def check_physics(columns: Sequence[Column], names: Sequence[str], where: str) -> None:
    """Check that columns stay within their bounds and do not change too fast.

    Noise may add twice its limit to a pattern's `SMOOTH_CHANGE`. Jumps (edges of steps, square waves, jobs, bursts,
    drops and quantized counters) are allowed where the synthesis marks them.

    Args:
        columns: the columns.
        names: their names, for the message.
        where: coordinates of the sample, for the message.

    Raises:
        PhysicsError: a column violates its limits; the message has the coordinates, the column, the step and the value.
    """
    shares = np.stack([column.shares for column in columns])
    if not (shares.min() >= 0.0 and shares.max() <= 1.0):
        outside = next(k for k, row in enumerate(shares) if not (row.min() >= 0.0 and row.max() <= 1.0))
        low, high = shares[outside].min(), shares[outside].max()
        raise PhysicsError(f"{where}, {names[outside]}: found shares from {low} to {high}, expected 0 to 1")
    limits = [SMOOTH_CHANGE + 2 * NOISE_LIMIT * column.noise + 1e-9 for column in columns]
    # SMOOTH_CHANGE is the smallest limit of a column: below it, no column has to be examined.
    change = np.abs(shares[:, 1:] - shares[:, :-1])
    if change.max(initial=0.0) <= SMOOTH_CHANGE:
        return
    for row, column, limit, name in zip(change, columns, limits, names, strict=True):
        violations = np.flatnonzero((row > limit) & ~column.jumps[1:])
        if len(violations):
            raise PhysicsError(
                f"{where}, {name}, step {violations[0] + 1}: found a change of {row[violations[0]]:.3f} of the "
                f"capacity, expected at most {limit:.3f} outside of jumps"
            )


def _drop(random: np.random.Generator, shares: Values, jumps: NDArray[np.bool_]) -> Values:
    """Apply one to three short drops of most of the available amount in the middle four fifths."""
    steps, shares = len(shares), shares.copy()
    for _ in range(integer(random, 1, 3)):
        start = integer(random, steps // 10, max(steps // 10, steps - steps // 10 - 1))
        end = min(steps, start + integer(random, 1, 5))
        shares[start:end] *= between(random, 0.2, 0.5)
        jumps[[start, end]] = True
    return shares


def _coarse(shares: Values, count: int, jumps: NDArray[np.bool_]) -> Values:
    """Quantize a counter to `count` values above zero; its steps are jumps."""
    coarse = np.floor(shares * count + 0.5) / count
    jumps[1 : len(shares)] |= coarse[1:] != coarse[:-1]
    return coarse
