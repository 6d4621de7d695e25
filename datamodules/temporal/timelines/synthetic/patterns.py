"""Generates patterns of a channel: shares of the capacity that are available at each step.

The first five patterns are those of the guide (docs/from-the-guides.md). The others resemble pods of a cluster
(GenTD26): constant for most of the time, fully available, or switched by a job.

A pattern returns its values (before noise) and the steps where it may jump; everywhere else it is smooth.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from engine.determinism.scalar_draws import between, integer

Values = NDArray[np.float64]
Shape = tuple[Values, list[int]]
Pattern = Callable[[np.random.Generator, int], Shape]


@lru_cache(maxsize=512)
def clock(steps: int) -> Values:
    """Return the time from 0 at the first step to 1 at the last."""
    time = np.arange(steps) / max(steps - 1, 1)
    # The array is cached and shared by all callers.
    time.flags.writeable = False
    return time


def linear(random: np.random.Generator, steps: int) -> Shape:
    """Return a straight line."""
    start, change = between(random, 0.2, 0.8), between(random, 0.3, 0.7)
    return start + (change if random.random() < 0.5 else -change) * clock(steps), []


def exponential(random: np.random.Generator, steps: int) -> Shape:
    """Return accelerating growth, or decelerating decay, to the end of the timeline."""
    low, high = between(random, 0.0, 0.3), between(random, 0.7, 1.0)
    time = clock(steps) if random.random() < 0.5 else clock(steps)[::-1]
    return low + (high - low) * np.expm1(3 * time) / np.expm1(3.0), []


def sinusoidal(random: np.random.Generator, steps: int) -> Shape:
    """Return one to three periods of a sine wave, each of at least ten steps."""
    mean, amplitude = between(random, 0.3, 0.7), between(random, 0.1, 0.3)
    periods, phase = between(random, 1.0, min(3.0, max(1.0, steps / 10))), 2 * np.pi * random.random()
    return mean + amplitude * np.sin(2 * np.pi * periods * clock(steps) + phase), []


def step(random: np.random.Generator, steps: int) -> Shape:
    """Return one level, then another level."""
    values, change = np.full(steps, between(random, 0.05, 0.95)), integer(random, steps // 4, 3 * steps // 4)
    values[change:] = between(random, 0.05, 0.95)
    return values, [change]


def plateau(random: np.random.Generator, steps: int) -> Shape:
    """Return a constant level, then a ramp."""
    change, end = between(random, 0.2, 0.5), between(random, 1 / 3, 2 / 3)
    ramp = np.maximum(clock(steps) - end, 0.0) / (1 - end)
    return between(random, 0.3, 0.7) + (change if random.random() < 0.5 else -change) * ramp, []


def flat(random: np.random.Generator, steps: int) -> Shape:
    """Return a constant level."""
    return np.full(steps, random.random()), []


def saturated(random: np.random.Generator, steps: int) -> Shape:
    """Return the full capacity, or none of it."""
    return np.full(steps, 1.0 if random.random() < 0.75 else 0.0), []


def square(random: np.random.Generator, steps: int) -> Shape:
    """Return alternating idle and busy phases; often the full capacity is available while idle."""
    idle = 1.0 if random.random() < 0.5 else between(random, 0.5, 1.0)
    busy = idle * between(random, 0.0, 0.8)
    values, jumps = np.full(steps, idle), []
    position, taken = 0, random.random() < 0.5
    shortest, longest = max(2, steps // 10), max(3, steps // 2)
    while position < steps:
        end = min(steps, position + integer(random, shortest, longest))
        if taken:
            values[position:end] = busy
        jumps.append(position)
        position, taken = end, not taken
    return values, jumps


def bursts(random: np.random.Generator, steps: int) -> Shape:
    """Return a mostly idle curve with short bursts of different heights."""
    values = np.full(steps, 1.0 if random.random() < 0.7 else between(random, 0.5, 1.0))
    jumps = []
    for _ in range(integer(random, 1, max(1, steps // 8))):
        start = integer(random, 0, steps - 1)
        end = min(steps, start + integer(random, 1, 3))
        values[start:end] *= between(random, 0.0, 0.9)
        jumps += [start, end]
    return values, jumps


SEED: tuple[Pattern, ...] = (linear, exponential, sinusoidal, step, plateau)
POD: tuple[Pattern, ...] = (flat, saturated, square, bursts)
