"""Defines the four resources of a timeline, and the numbers in which their values are written.

A written value is an integer number of *levels*: percent of the capacity in the tiny format, the last decimal of a
physical unit in the full format. Facts are computed from levels, so facts and texts cannot disagree.
"""

from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Format(str, Enum):
    """Notation of values and times."""

    TINY = "tiny"  # integer percent of the capacity and numbers of steps, one template per case
    FULL = "full"  # physical units and seconds, several templates and synonyms


class Channel(NamedTuple):
    """A resource. Its values are the amount that is *available*, not the amount in use."""

    key: str
    unit: str  # suffix of a number in the full format, including the space
    decimals: int  # decimals of a number in the full format
    capacities: tuple[int, ...]  # capacities of common machines, in the unit
    memory: bool  # whether a job holds the resource (memory) or uses it intermittently (compute)


CHANNELS = (
    Channel("cpu_cores", " cores", 0, (8, 16, 32, 48, 64, 96, 128), False),
    Channel("cpu_mem_gb", " GB", 1, (32, 64, 128, 192, 256, 384, 512), True),
    Channel("gpu_sm", "%", 1, (100,), False),
    Channel("gpu_mem_gb", " GB", 1, (16, 24, 32, 40, 48, 64, 80), True),
)
KEYS = tuple(channel.key for channel in CHANNELS)


class Scale(NamedTuple):
    """Scale of the written values of a channel."""

    unit: str
    decimals: int
    top: int  # level of the full capacity

    @classmethod
    def for_channel(cls, channel: Channel, format: Format, capacity: float) -> "Scale":
        """Return the scale of a channel with a capacity in the channel's unit."""
        if format == Format.TINY:
            return cls("%", 0, 100)
        return cls(channel.unit, channel.decimals, max(1, round(capacity * 10**channel.decimals)))

    def levels(self, shares: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the nearest levels of shares of the capacity (0 to 1), in an array of any shape."""
        # np.round would round halves to the even level.
        return np.floor(shares * self.top + 0.5).astype(np.int64)

    def value(self, level: int) -> float:
        """Return the number that is written for a level."""
        return int(level) / 10**self.decimals
