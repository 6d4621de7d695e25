"""Computes confidence intervals of metrics."""

import math
from collections.abc import Sequence
from typing import NamedTuple

Z95 = 1.959963984540054
"""Half width of the central 95 % interval of the standard normal distribution."""


class MetricEstimate(NamedTuple):
    """A mean over questions, with its 95 % confidence interval if there is a formula for it."""

    value: float
    questions: int
    low: float | None = None
    high: float | None = None


def wilson(right: float, questions: int, z: float = Z95) -> tuple[float, float]:
    """Return the Wilson interval of a proportion ("Probable inference, the law of succession, ...", 1927).

    Unlike an interval by the standard error, it is not empty if all or no answers are right.

    Raises:
        ValueError: there are no questions.
    """
    if questions < 1:
        raise ValueError("found no questions, so there is no interval")
    share, square = right / questions, z * z / questions
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / questions + square / (4 * questions)) / (1 + square)
    # Rounding must not exclude the proportion itself, for example at 0 / n.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def mean(points: Sequence[float]) -> MetricEstimate:
    """Return the mean of scores in [0, 1]: with Wilson's interval if all are 0 or 1, else by the standard error."""
    count, value = len(points), math.fsum(points) / len(points)
    if all(point in (0.0, 1.0) for point in points):
        return MetricEstimate(value, count, *wilson(math.fsum(points), count))
    if count == 1:
        return MetricEstimate(value, count)
    error = math.sqrt(math.fsum((point - value) ** 2 for point in points) / (count * (count - 1)))
    return MetricEstimate(value, count, max(0.0, value - Z95 * error), min(1.0, value + Z95 * error))


def difference(first: MetricEstimate, second: MetricEstimate) -> tuple[float, float]:
    """Return the confidence interval of `second - first`, two proportions with intervals.

    Newcombe, "Interval estimation for the difference between independent proportions", 1998, method 10.
    """
    gain = second.value - first.value
    assert first.low is not None and first.high is not None and second.low is not None and second.high is not None
    low = math.hypot(second.value - second.low, first.high - first.value)
    high = math.hypot(second.high - second.value, first.value - first.low)
    return gain - low, gain + high
