"""Normalizes a series to shares of its range, so that nothing is lost: `value = offset + scale * share`.

Offset and scale are decimal numbers of few digits, and the text that the model reads states exactly the numbers that
were used. ChatTS (arXiv 2412.03104) states the mean and a scale, rounded to four decimals; a range keeps the shares in
0 to 1, as the encoder takes them.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGEST = 1e100
"""Largest absolute value of a measurement; the range of larger values has no exact float."""

_DIGITS = 3  # significant digits of the scale
_CONTEXT = Context(prec=400)  # exact for all numbers up to LARGEST


class NormalizedSeries(NamedTuple):
    """A series as the encoder takes it, and the numbers by which its values are found again."""

    shares: NDArray[np.float32]  # [T] 0 to 1; 0 where nothing was measured
    present: NDArray[np.bool_]  # [T]
    offset: str  # decimal number, smallest value or slightly below it
    scale: str  # decimal number above 0; offset + scale is the largest value or slightly above it

    def values(self) -> NDArray[np.float64]:
        """Return the values, NaN for a gap; off by at most 1e-7 of the scale, as shares are float32."""
        values = float(self.offset) + float(self.scale) * self.shares.astype(np.float64)
        return np.where(self.present, values, np.nan)


def normalize(values: NDArray[np.float64]) -> NormalizedSeries:
    """Normalize values [T], NaN where nothing was measured, all of at most LARGEST."""
    present = ~np.isnan(values)
    measured = values[present]
    if not len(measured):
        return NormalizedSeries(np.zeros(len(values), np.float32), present, "0", "1")
    # Decimal represents a float exactly, so the stated offset and scale are the numbers that were used.
    low, high = Decimal(float(measured.min())), Decimal(float(measured.max()))
    offset, scale = _rounded_range(low, high)
    shares = np.zeros(len(values), np.float32)
    # Clipped, because the division may round to slightly above 1.
    shares[present] = ((measured - float(offset)) / float(scale)).clip(0, 1)
    return NormalizedSeries(shares, present, _format_number(offset), _format_number(scale))


def _rounded_range(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """Return an offset of at most `low` and a scale that reaches `high`, rounded outwards to few digits."""
    span = _CONTEXT.subtract(high, low)
    # A flat series is measured in digits of its value; a float has 17 of them.
    size = span or abs(high) or Decimal(1)
    finest = (abs(high) or size).adjusted() - 17
    unit = Decimal(1).scaleb(max(size.adjusted() - _DIGITS + 1, finest), _CONTEXT)
    offset = low.quantize(unit, ROUND_FLOOR, _CONTEXT)
    scale = _CONTEXT.subtract(high, offset).quantize(unit, ROUND_CEILING, _CONTEXT)
    return offset, max(scale, unit)


def _format_number(number: Decimal) -> str:
    short = _CONTEXT.normalize(number) if number else Decimal(0)
    return f"{short:f}" if -7 < short.adjusted() < 16 else str(short)
