"""Events of all users as arrays."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer]


class Events(Protocol):
    """Events of all users, user after user, oldest first. Implemented by the memory-mapped store and by EventArrays."""

    @property
    def offsets(self) -> Integers:
        """int64 [U + 1]: the events of user u are ``offsets[u]:offsets[u + 1]``."""

    @property
    def items(self) -> Integers:
        """[N], 1 to ``num_items``."""

    @property
    def times(self) -> Integers:
        """int64 [N], seconds, non-decreasing within a user."""

    @property
    def num_items(self) -> int:
        """Number of items, including items without events."""


class EventArrays(NamedTuple):
    """Events in memory."""

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    times: NDArray[np.int64]
    num_items: int


def user_chunks(offsets: Integers, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of users with about ``chunk`` events in total, at least one user each."""
    first, users = 0, len(offsets) - 1
    while first < users:
        last = int(np.searchsorted(offsets, offsets[first] + chunk, side="right")) - 1
        yield first, (last := min(max(last, first + 1), users))
        first = last
