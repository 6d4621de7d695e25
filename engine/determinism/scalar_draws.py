"""Draws single numbers from a generator of NumPy, several times faster than the generator's own methods do."""

import numpy as np


def between(random: np.random.Generator, low: float, high: float) -> float:
    """Draw a uniform number in [low, high)."""
    return low + (high - low) * random.random()


def integer(random: np.random.Generator, low: int, high: int) -> int:
    """Draw a uniform integer in low..high, both included."""
    return low + int((high - low + 1) * random.random())
