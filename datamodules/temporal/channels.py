"""The four resources of a timeline, and the numbers in which their values are shown.

A shown value is a whole number of *levels*: percents of the capacity in the tiny format, the last digit of a physical
unit in the full one. Facts are computed from levels, so what is decided and what is printed cannot differ.
"""

from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Format(str, Enum):
    """How values and times are written."""

    TINY = "tiny"  # whole percents of the capacity and numbers of steps, one template for a case
    FULL = "full"  # physical units and seconds, several templates and synonyms


class Channel(NamedTuple):
    """A resource. Its values are what is *available* of it, not what is used."""

    key: str
    unit: str  # as it follows a number in the full format, with its space
    decimals: int  # of a number in the full format
    capacities: tuple[int, ...]  # of machines as they are sold, in the unit
    memory: bool  # is taken and held by a job, where computing power is used now and then


CHANNELS = (
    Channel("cpu_cores", " cores", 0, (8, 16, 32, 48, 64, 96, 128), False),
    Channel("cpu_mem_gb", " GB", 1, (32, 64, 128, 192, 256, 384, 512), True),
    Channel("gpu_sm", "%", 1, (100,), False),
    Channel("gpu_mem_gb", " GB", 1, (16, 24, 32, 40, 48, 64, 80), True),
)
KEYS = tuple(channel.key for channel in CHANNELS)


class Scale(NamedTuple):
    """What is shown of one channel."""

    unit: str
    decimals: int
    top: int  # levels of the whole capacity

    @classmethod
    def of(cls, channel: Channel, format: Format, capacity: float) -> "Scale":
        """The scale of a channel with a capacity (in the channel's unit)."""
        if format == Format.TINY:
            return cls("%", 0, 100)
        return cls(channel.unit, channel.decimals, max(1, round(capacity * 10**channel.decimals)))

    def levels(self, shares: NDArray[np.floating]) -> NDArray[np.int64]:
        """The nearest level of shares of the capacity (0 to 1)."""
        return np.floor(shares * self.top + 0.5).astype(np.int64)

    def value(self, level: int) -> float:
        """A level as the number that is shown."""
        return int(level) / 10**self.decimals
