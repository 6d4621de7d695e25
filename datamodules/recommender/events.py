"""Defines the events of all users as arrays."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer]


class EventColumns(NamedTuple):
    """Features of N events as the source has them: K categories and M numbers of each."""

    codes: NDArray[np.int32]  # [N, K], index in `categories`, from 1; 0 where missing
    numbers: NDArray[np.float64]  # [N, M], NaN where missing
    categories: Sequence[Sequence[str]]  # categories of each of the K columns

    def select_rows(self, events: Integers) -> "EventColumns":
        """Return the features of the events at some indices, int64 [n]; missing features where the index is -1."""
        is_known = (events >= 0)[:, None]
        codes = np.where(is_known, self.codes[events], 0).astype(np.int32)
        return EventColumns(codes, np.where(is_known, self.numbers[events], np.nan), self.categories)


class Events(Protocol):
    """Events of all users, user after user, oldest first. Implemented by the memory-mapped store and by EventArrays."""

    @property
    def offsets(self) -> Integers:
        """int64 [U + 1]: the events of user u are `offsets[u]:offsets[u + 1]`."""

    @property
    def items(self) -> Integers:
        """[N], 1 to `num_items`."""

    @property
    def times(self) -> Integers:
        """int64 [N], seconds, non-decreasing within a user."""

    @property
    def num_items(self) -> int:
        """Number of items, including items without events."""

    @property
    def features(self) -> EventColumns | None:
        """Features of the events; None if they have none."""


class EventArrays(NamedTuple):
    """Events in memory."""

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    times: NDArray[np.int64]
    num_items: int
    features: EventColumns | None = None


def user_chunks(offsets: Integers, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of users with about `chunk` events in total, at least one user each.

    Args:
        offsets: [U + 1], see `Events.offsets`.
        chunk: number of events.

    Yields:
        The first user of a range, and the user after its last.
    """
    first, users = 0, len(offsets) - 1
    while first < users:
        # A user with more than `chunk` events is a chunk by itself.
        last = int(np.searchsorted(offsets, offsets[first] + chunk, side="right")) - 1
        last = min(max(last, first + 1), users)
        yield first, last
        first = last
