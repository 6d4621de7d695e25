"""Downsamples a series of any length to a bounded number of points, in one pass."""

import math
from typing import NamedTuple


class Point(NamedTuple):
    """Point of a curve: one value, or several neighboring values merged."""

    step: float
    time: float  # seconds
    mean: float | None  # None: no value is finite
    low: float | None
    high: float | None


class _Bin:
    """Sums over neighboring values."""

    __slots__ = ("count", "finite", "step", "time", "total", "low", "high")

    def __init__(self, step: float, time: float, value: float) -> None:
        finite = math.isfinite(value)
        self.count, self.finite, self.step, self.time = 1, int(finite), step, time
        self.total = value if finite else 0.0
        self.low, self.high = (value, value) if finite else (math.inf, -math.inf)

    def merge(self, other: "_Bin") -> None:
        self.count += other.count
        self.finite += other.finite
        self.step += other.step
        self.time += other.time
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def point(self) -> Point:
        step, time = self.step / self.count, self.time / self.count
        if not self.finite:
            return Point(step, time, None, None, None)
        return Point(step, time, self.total / self.finite, self.low, self.high)


class DownsampledSeries:
    """Series that merges more neighbors as it gets longer; it keeps their extremes, so that no peak is lost.

    Args:
        at_most: largest number of points, at least 2.
    """

    def __init__(self, at_most: int) -> None:
        if at_most < 2:
            raise ValueError(f"a curve has at least 2 points, got {at_most}")
        # The number is even, so that `_halve` finds a partner for each point.
        self._at_most = at_most - at_most % 2
        self._bins: list[_Bin] = []
        self.width = 1
        """Number of values merged into one point."""
        self._last_step = -math.inf

    def add(self, step: float, time: float, value: float) -> bool:
        """Add a value; return False, and ignore it, if its step is not after the last step."""
        if step <= self._last_step:
            return False
        self._last_step = step
        new = _Bin(step, time, value)
        if self._bins and self._bins[-1].count < self.width:
            self._bins[-1].merge(new)
            return True
        if len(self._bins) == self._at_most:
            self._halve()
        self._bins.append(new)
        return True

    def points(self) -> list[Point]:
        """Return the points of the curve, at most `at_most`, in ascending order of their steps."""
        return [item.point() for item in self._bins]

    def _halve(self) -> None:
        firsts, seconds = self._bins[::2], self._bins[1::2]
        for first, second in zip(firsts, seconds, strict=True):
            first.merge(second)
        self._bins = firsts
        self.width *= 2
