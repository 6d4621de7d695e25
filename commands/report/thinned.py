"""A course of any length in a bounded number of points, read once from its beginning to its end."""

import math
from typing import NamedTuple


class Point(NamedTuple):
    """What lies at, or was drawn together to, one place of a curve."""

    step: float
    time: float  # seconds
    mean: float | None  # None: none of them is finite
    low: float | None
    high: float | None


class _Sums:
    """Neighbouring points, drawn together."""

    __slots__ = ("count", "finite", "step", "time", "total", "low", "high")

    def __init__(self, step: float, time: float, value: float) -> None:
        finite = math.isfinite(value)
        self.count, self.finite, self.step, self.time = 1, int(finite), step, time
        self.total = value if finite else 0.0
        self.low, self.high = (value, value) if finite else (math.inf, -math.inf)

    def take(self, other: "_Sums") -> None:
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


class Thinned:
    """Draws ever more neighbours together as a course gets longer; their extremes are kept, so no peak is lost.

    Args:
        at_most: points, at least 2.
    """

    def __init__(self, at_most: int) -> None:
        if at_most < 2:
            raise ValueError(f"a curve has at least 2 points, got {at_most}")
        self._at_most = at_most - at_most % 2
        self._sums: list[_Sums] = []
        self.width = 1
        """How many were drawn together to one point."""
        self._last_step = -math.inf

    def add(self, step: float, time: float, value: float) -> bool:
        """Whether it was taken: what does not come after the last one belongs to another course."""
        if step <= self._last_step:
            return False
        self._last_step = step
        new = _Sums(step, time, value)
        if self._sums and self._sums[-1].count < self.width:
            self._sums[-1].take(new)
            return True
        if len(self._sums) == self._at_most:
            self._halve()
        self._sums.append(new)
        return True

    def points(self) -> list[Point]:
        return [sums.point() for sums in self._sums]

    def _halve(self) -> None:
        pairs = zip(self._sums[::2], self._sums[1::2], strict=True)
        self._sums = [first for first, second in pairs if first.take(second) is None]
        self.width *= 2
