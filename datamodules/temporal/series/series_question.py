"""Defines a question about one or several series, and limits its size."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.number_check import check_numbers


class InputSeries(NamedTuple):
    """One channel of a question: values at regular steps, with its name and unit for the prompt."""

    name: str
    unit: str  # empty if unknown
    values: NDArray[np.float64]  # [T], T at least 1, NaN where nothing was measured
    step: float | None = None  # seconds, None if unknown

    @property
    def is_measured(self) -> bool:
        """Whether any value is a number."""
        return not bool(np.isnan(self.values).all())

    def same(self, other: "InputSeries") -> bool:
        """Return whether two series are equal, gaps included."""
        # Arrays have no single truth value, so they are compared apart, with NaN equal to NaN.
        return self[:2] + self[3:] == other[:2] + other[3:] and np.array_equal(self.values, other.values, True)


class SeriesQuestion(NamedTuple):
    """A question, with its reference answer if that is known."""

    where: str  # file and line or row, for messages
    key: str  # name that the user gave it, or empty
    question: str  # may hold one PLACEHOLDER for each series
    series: tuple[InputSeries, ...]
    options: tuple[str, ...] = ()  # empty for an open question
    answer: str | None = None  # one of the options, if there are any
    kind: str = ""  # category, empty if there is none


@dataclass(frozen=True)
class SeriesLimits:
    """Largest sizes that are read. A larger file is refused, with the name of the option.

    Args:
        steps: steps of a series, after resampling.
        series: series of a question.
        options: options of a question.
        row_bytes: bytes of a line or row of a file.
    """

    steps: int = 100_000
    series: int = 64
    options: int = 64
    row_bytes: int = 2**24

    def __post_init__(self) -> None:
        check_numbers("limits.", vars(self), at_least=1)
