"""How far a figure could be from what more questions would have shown."""

import math
from collections.abc import Sequence
from typing import NamedTuple

Z95 = 1.959963984540054
"""Standard deviations to each side that hold 95 % of a normal distribution."""


class Figure(NamedTuple):
    """A mean over questions, with its 95 % interval where there is a formula for it."""

    value: float
    questions: int
    low: float | None = None
    high: float | None = None


def wilson(right: float, questions: int, z: float = Z95) -> tuple[float, float]:
    """The interval of a share (Wilson, "Probable inference, the law of succession, and statistical inference", 1927).

    Unlike the standard error it is not empty where all or none are right.

    Raises:
        ValueError: of no questions.
    """
    if questions < 1:
        raise ValueError("the share of no questions has no interval")
    share, square = right / questions, z * z / questions
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / questions + square / (4 * questions)) / (1 + square)
    # What rounding leaves of 0 / n must not put the share outside.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def mean(points: Sequence[float]) -> Figure:
    """Of points from 0 to 1, at least one: with Wilson's interval where all are 0 or 1, else by the standard error."""
    count, value = len(points), math.fsum(points) / len(points)
    if all(point in (0.0, 1.0) for point in points):
        return Figure(value, count, *wilson(math.fsum(points), count))
    if count == 1:
        return Figure(value, count)
    error = math.sqrt(math.fsum((point - value) ** 2 for point in points) / (count * (count - 1)))
    return Figure(value, count, max(0.0, value - Z95 * error), min(1.0, value + Z95 * error))


def difference(first: Figure, second: Figure) -> tuple[float, float]:
    """The interval of `second - first`, two shares that have intervals.

    Newcombe, "Interval estimation for the difference between independent proportions", 1998, method 10.
    """
    gain = second.value - first.value
    assert first.low is not None and first.high is not None and second.low is not None and second.high is not None
    low = math.hypot(second.value - second.low, first.high - first.value)
    high = math.hypot(second.high - second.value, first.value - first.low)
    return gain - low, gain + high
