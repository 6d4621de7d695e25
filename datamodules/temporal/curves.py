"""A column of a timeline: a pattern or a job's share of it, with noise, drops, coarse counters and missing samples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.channels import Channel
from datamodules.temporal.patterns import POD, SEED, Values, between, integer

SMOOTH_CHANGE = 0.3
"""The largest change of a pattern from one step to the next, in shares of the capacity, where it does not jump."""

NOISE_LIMIT = 3.0  # standard deviations
FEWEST_STEPS = 10  # in fewer the exponential pattern changes faster than SMOOTH_CHANGE


class Column(NamedTuple):
    """One channel of T steps."""

    shares: Values  # [T] of the capacity, 0 to 1
    jumps: NDArray[np.bool_]  # [T] whether the change from the step before may be of any size
    noise: float  # standard deviation

    def backwards(self) -> "Column":
        """The same with time reversed."""
        return Column(self.shares[::-1], np.append(False, self.jumps[:0:-1]), self.noise)


class Job(NamedTuple):
    """What runs on the machine and moves all its channels together."""

    use: Values  # [T] of computing power, 0 to 1
    held: Values  # [T] of memory, 0 to 1
    use_jumps: list[int]
    held_jumps: list[int]

    def backwards(self) -> "Job":
        """The same with time reversed."""
        jumps = ([len(self.use) - jump for jump in jumps] for jumps in (self.use_jumps, self.held_jumps))
        return Job(self.use[::-1], self.held[::-1], *jumps)


class PhysicsError(ValueError):
    """A curve that no machine can have; says which sample it is."""


def draw_job(random: np.random.Generator, steps: int) -> Job:
    """A job that begins and ends somewhere, fills its memory and computes with pauses."""
    start = integer(random, 0, steps // 2)
    end = min(steps, start + integer(random, steps // 4, steps))
    held, use = np.zeros(steps), np.zeros(steps)
    # The fill takes at least four steps: memory that is taken at once is a job with a jump instead.
    filling = integer(random, 4, max(4, steps // 3)) if random.random() < 0.5 else 1
    held[start:end] = np.minimum(np.arange(1, end - start + 1) / filling, 1.0)
    use[start:end] = 1.0
    use_jumps = [start, end]
    for _ in range(integer(random, 0, 4)):
        pause = integer(random, start, end - 1)
        until = min(end, pause + integer(random, 1, max(2, steps // 8)))
        use[pause:until] = between(random, 0.0, 0.6)
        use_jumps += [pause, until]
    return Job(use, held, use_jumps, [start, end] if filling == 1 else [end])


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
    """One channel: the job's use of it, or a pattern of its own (a pod's with probability `pod_share`)."""
    pod = job is not None or random.random() < pod_share
    if job is not None:
        idle = 1.0 if random.random() < 0.5 else between(random, 0.6, 1.0)
        taken, jumps = (job.held, job.held_jumps) if channel.memory else (job.use, job.use_jumps)
        shares = idle * (1 - between(random, 0.2, 1.0) * taken)
    else:
        patterns = POD if pod else SEED
        shares, jumps = patterns[int(len(patterns) * random.random())](random, steps)
        shares = np.minimum(np.maximum(shares, 0.0), 1.0)
    allowed = np.zeros(steps + 1, np.bool_)
    allowed[jumps] = True
    # Counters of a pod that does nothing do not move; those of a busy one do a little.
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
    """[T] which samples of a channel arrived where some got lost, here and there or all in a row; most arrived."""
    present = np.ones(steps, np.bool_)
    if random.random() < 0.5:
        present = random.random(steps) >= between(random, 0.02, 0.25)
    else:
        start = integer(random, 0, steps - 1)
        present[start : start + integer(random, 1, max(1, steps // 4))] = False
    if 5 * int(present.sum()) < 3 * steps:
        return np.ones(steps, np.bool_)
    return present


def check_physics(columns: Sequence[Column], names: Sequence[str], where: str) -> None:
    """Refuses columns that leave their bounds or change faster than they may.

    Beyond the pattern's own `SMOOTH_CHANGE` the noise may add twice its limit. Jumps (the edges of steps, of square
    waves, of jobs, of bursts, drops and coarse counters) are allowed where the synthesis says that one is.

    Raises:
        PhysicsError: with the sample's coordinates `where`, the column's name, the step and what was found there.
    """
    shares = np.stack([column.shares for column in columns])
    if not (shares.min() >= 0.0 and shares.max() <= 1.0):
        wrong = next(k for k, row in enumerate(shares) if not (row.min() >= 0.0 and row.max() <= 1.0))
        low, high = shares[wrong].min(), shares[wrong].max()
        raise PhysicsError(f"{where}, {names[wrong]}: found shares from {low} to {high}, expected 0 to 1")
    limits = [SMOOTH_CHANGE + 2 * NOISE_LIMIT * column.noise + 1e-9 for column in columns]
    change = np.abs(shares[:, 1:] - shares[:, :-1])
    if change.max(initial=0.0) <= SMOOTH_CHANGE:
        return
    for row, column, limit, name in zip(change, columns, limits, names, strict=True):
        wrong = np.flatnonzero((row > limit) & ~column.jumps[1:])
        if len(wrong):
            raise PhysicsError(
                f"{where}, {name}, step {wrong[0] + 1}: found a change by {row[wrong[0]]:.3f} of the capacity, "
                f"expected at most {limit:.3f} where nothing jumps"
            )


def _drop(random: np.random.Generator, shares: Values, jumps: NDArray[np.bool_]) -> Values:
    """One to three short losses of most of what is available, in its middle four fifths, as the original has."""
    steps, shares = len(shares), shares.copy()
    for _ in range(integer(random, 1, 3)):
        start = integer(random, steps // 10, max(steps // 10, steps - steps // 10 - 1))
        end = min(steps, start + integer(random, 1, 5))
        shares[start:end] *= between(random, 0.2, 0.5)
        jumps[[start, end]] = True
    return shares


def _coarse(shares: Values, count: int, jumps: NDArray[np.bool_]) -> Values:
    """A counter that knows `count` values above zero; its own steps are jumps."""
    coarse = np.floor(shares * count + 0.5) / count
    jumps[1 : len(shares)] |= coarse[1:] != coarse[:-1]
    return coarse
