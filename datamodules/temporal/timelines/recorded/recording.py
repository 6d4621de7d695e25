"""Defines a recorded timeline, and checks the capacities of its machine."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.timelines.channels import KEYS, Channel
from engine.io.json_records import describe_names, describe_value
from engine.number_check import is_number

MAX_CAPACITY = 1e9
"""Largest capacity of a channel, in its unit. Values of a larger capacity could not be written as integer levels."""


class Recording(NamedTuple):
    """Timeline of a machine or pod."""

    name: str
    shares: NDArray[np.float64]  # [T, 4] available share of the capacity, NaN where not measured
    capacities: tuple[float, ...]  # [4] in the channels' units
    step_ms: int


def check_capacities(capacities: Mapping[str, float]) -> None:
    """Validate capacities.

    Raises:
        ValueError: a channel is unknown, or a capacity is not a positive number of at most MAX_CAPACITY.
    """
    if unknown := sorted(map(str, set(capacities) - set(KEYS))):
        raise ValueError(f"capacities: found {describe_names(unknown)}, expected some of {', '.join(KEYS)}")
    for key, capacity in capacities.items():
        if not is_number(capacity) or not 0 < capacity < math.inf:
            raise ValueError(f"capacities: {key} is {describe_value(capacity)}, expected a number above 0")
        if capacity > MAX_CAPACITY:
            raise ValueError(f"capacities: {key} is {capacity:g}, expected at most {MAX_CAPACITY:g}")


def covering_capacity(channel: Channel, values: NDArray[np.float64]) -> float:
    """Return the smallest common capacity that covers the values [n], or their maximum if none does; NaN is missing."""
    maximum = float(np.nanmax(values)) if not np.isnan(values).all() else 0.0
    return float(next((capacity for capacity in channel.capacities if capacity >= maximum), maximum))
