"""Resamples a series with irregular stamps to steps of one length.

The rule: a step is as long as the user sets, else as the lower median of the distances between successive stamps, or
their mean if they differ by the rounding of large stamps only.
Step k is centered k steps after the first stamp. Its value is the mean of the measurements whose stamps are nearer to
its center than to another (a stamp in the middle belongs to the later step). A step without a measurement is a gap.
Nothing is interpolated, and regular stamps keep their values to the bit.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LATEST = 1e15
"""Largest stamp and step, in seconds; beyond it, float64 does not resolve a second."""


class Resampled(NamedTuple):
    """Values at regular steps, as `resample` returns them."""

    values: NDArray[np.float64]  # [T], NaN for a gap
    step: float | None  # seconds; None for a single stamp without a given step


def resample(times: NDArray[np.float64], values: NDArray[np.float64], step: float | None, most_steps: int) -> Resampled:
    """Return the series at regular steps, see the rule of this module.

    Args:
        times: [n] stamps in seconds, in order; equal stamps are allowed.
        values: [n] measurements, NaN where nothing was measured.
        step: length of a step in seconds; None for the lower median of the distances.
        most_steps: largest length of the result.

    Raises:
        ValueError: the stamps go down, or the result is longer than `most_steps`; the message names the stamp by its
            number, from 1.
    """
    distances = np.diff(times)
    if (distances < 0).any():
        index = int((distances < 0).argmax()) + 1
        raise ValueError(
            f"stamp {index + 1} is {times[index]:.17g}, after {times[index - 1]:.17g}; expected stamps in order"
        )
    apart = distances[distances > 0]
    if step is None and len(apart):
        step = _step_of(apart, float(np.spacing(np.abs(times[[0, -1]]).max())))
    if step is None:  # all stamps are equal
        return Resampled(_means(np.zeros(len(times), np.int64), values, 1), None)
    span = float(times[-1] - times[0]) / step
    # Written with `not`, so that a NaN is refused as well. Checked before any array of this length is allocated.
    if not span < most_steps - 0.5:
        raise ValueError(
            f"stamps span {span + 1:,.0f} steps of {step:g} s, expected at most {most_steps:,}; set a longer step, or "
            "raise limits.steps"
        )
    # np.round would round halves to even steps.
    step_numbers = np.floor((times - times[0]) / step + 0.5).astype(np.int64)
    return Resampled(_means(step_numbers, values, int(step_numbers[-1]) + 1), step)


def _step_of(distances: NDArray[np.float64], spacing: float) -> float:
    """Return the lower median of the distances, without the rounding error of stamps that are regular.

    Stamps since 1970 are rounded to 2.4e-7 s, so the median of a step of 1 ms may be wrong by a thousandth. After some
    hundred steps that would be half a step.

    Args:
        distances: [n] above 0.
        spacing: distance of the largest stamp to the next float64.
    """
    step = float(np.sort(distances)[(len(distances) - 1) // 2])
    multiples = np.round(distances / step)
    span, steps = float(distances.sum()), float(multiples.sum())
    is_regular = (np.abs(distances - multiples * step) <= 2 * spacing * (multiples + 1)).all() and multiples.min() > 0
    # An exact median stays as it is.
    return span / steps if is_regular and abs(span - steps * step) > 1e-3 * step else step


def _means(step_numbers: NDArray[np.int64], values: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Return the mean [steps] of the measured values at each step, NaN where there is none."""
    measured = ~np.isnan(values)
    counts = np.bincount(step_numbers[measured], minlength=steps)
    sums = np.bincount(step_numbers[measured], weights=values[measured], minlength=steps)
    return np.divide(sums, counts, out=np.full(steps, np.nan), where=counts > 0)
