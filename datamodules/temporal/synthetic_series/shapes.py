"""Generates shapes of series: trend, season, noise, bumps, smooth random curves; without scale and offset."""

import numpy as np
from numpy.typing import NDArray

Shape = NDArray[np.float64]
"""Values [T] of a series, in any range."""


def noise(random: np.random.Generator, steps: int, size: float) -> Shape:
    """Return independent normal noise."""
    return random.normal(0.0, size, steps)


def slope(steps: int, rise: float) -> Shape:
    """Return a straight line from 0 to `rise`."""
    return np.linspace(0.0, rise, steps)


def season(random: np.random.Generator, steps: int, period: float) -> Shape:
    """Return a wave of a period in steps, with a random phase and a random share of its first harmonic."""
    angle = 2 * np.pi * (np.arange(steps) / period + random.random())
    return np.sin(angle) + 0.5 * random.random() * np.sin(2 * angle + random.random())


def smooth(random: np.random.Generator, steps: int, width: int) -> Shape:
    """Return smooth random values of mean 0 and deviation 1: noise, averaged over `width` steps."""
    window = np.hanning(width + 2)[1:-1]
    values = np.convolve(random.normal(size=steps + width - 1), window, mode="valid")
    return (values - values.mean()) / max(float(values.std()), 1e-6)


def bump(steps: int, center: float, width: float) -> Shape:
    """Return a bell of height 1 at a center in 0 to 1, of a width in the same unit."""
    return np.exp(-(((np.linspace(0.0, 1.0, steps) - center) / width) ** 2))


def unit_range(shape: Shape) -> Shape:
    """Return a shape from 0 to 1 exactly, so that its range reveals nothing about what it is."""
    span = float(shape.max() - shape.min())
    return (shape - shape.min()) / span if span else shape * 0
