"""Peer: batches built event by event in Python, as in the samplers of the public codes.

The rows equal the rows of kang205/SASRec, pmixer/SASRec.pytorch and their descendants: a loop from the end of the
history fills inputs, targets and a negative each; negatives are redrawn until the user has no event with them. With
times, two nested loops write the interval of every pair of events into an L x L matrix (the public codes of TiSASRec do
this for all users at the start and keep the result; some descendants do it for each batch).
"""

from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Row(NamedTuple):
    """A user, padded with 0 on the left."""

    items: NDArray[np.int64]  # [L]
    targets: NDArray[np.int64]  # [L]
    negatives: NDArray[np.int64]  # [L]
    intervals: NDArray[np.int64] | None  # [L, L]


class User(NamedTuple):
    """The training part of a user's events, oldest first."""

    items: list[int]
    times: list[int]
    time_scale: int  # seconds


class PerRowSampler:
    """Builds rows of at most L events.

    Args:
        length: L.
        time_span: intervals are clipped to this, or None for rows without intervals.
        negatives: with False negatives stay 0.
    """

    def __init__(
        self,
        users: list[User],
        num_items: int,
        length: int,
        time_span: int | None,
        seed: int = 0,
        negatives: bool = True,
    ) -> None:
        self.users, self.num_items, self.length, self.time_span = users, num_items, length, time_span
        self.random, self.negatives = Random(seed), negatives

    def batch(self, rows: list[int]) -> Row:
        """Return the rows' users as arrays [B, L], intervals [B, L, L]."""
        items, targets, negatives, intervals = zip(*(self.row(self.users[row]) for row in rows), strict=True)
        stacked = None if self.time_span is None else np.stack(intervals)
        return Row(np.stack(items), np.stack(targets), np.stack(negatives), stacked)

    def row(self, user: User) -> Row:
        """Return a user as arrays [L], intervals [L, L]."""
        items, targets, negatives = (np.zeros(self.length, np.int64) for _ in range(3))
        times = np.zeros(self.length, np.int64)
        # Made for each row again, as in the public codes.
        known = set(user.items)
        target, position = user.items[-1], self.length - 1
        for item, time in zip(reversed(user.items[:-1]), reversed(user.times[:-1]), strict=True):
            items[position], targets[position], times[position] = item, target, time
            if self.negatives:
                negatives[position] = self._unknown(known)
            target = item
            position -= 1
            if position < 0:
                break
        first = position + 1
        return Row(items, targets, negatives, self._intervals(times.tolist(), first, user.time_scale))

    def _unknown(self, known: set[int]) -> int:
        item = self.random.randint(1, self.num_items)
        while item in known:
            item = self.random.randint(1, self.num_items)
        return item

    def _intervals(self, times: list[int], first: int, scale: int) -> NDArray[np.int64] | None:
        if self.time_span is None:
            return None
        # Rounded to the nearest unit in integers, as TimeTables does; half is rounded up.
        units = [(2 * (time - times[first]) + scale) // (2 * scale) for time in times]
        intervals = np.zeros((self.length, self.length), np.int64)
        for i in range(first, self.length):
            for j in range(first, self.length):
                intervals[i][j] = min(abs(units[i] - units[j]), self.time_span)
        return intervals
