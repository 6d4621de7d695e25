"""Reads event features of a line of `predict_histories`: a list for each column, as long as the list of items."""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datamodules.recommender.events import EventColumns
from datamodules.recommender.features.event_feature_settings import EventFeatures
from datamodules.recommender.reading.errors import preview_json
from engine.number_check import is_number


class HistoryFeatures:
    """Collects the features of the events of all lines.

    Args:
        settings: names of the columns, which are the keys of a line.
    """

    def __init__(self, settings: EventFeatures) -> None:
        self._settings = settings
        self._codes: list[dict[str, int]] = [{} for _ in settings.categories]
        # Arrays of C numbers, because a list of Python objects takes several times the memory.
        self._of_categories, self._of_numbers = array("i"), array("d")
        self._missing = dict.fromkeys(self.keys)

    @property
    def keys(self) -> Sequence[str]:
        """Keys of a line that are features."""
        return self._settings.columns

    @property
    def missing(self) -> Sequence[str]:
        """Keys that no line has."""
        return list(self._missing)

    def add(self, row: Mapping[str, Any], events: int, kept: Sequence[int]) -> None:
        """Add the events of a line.

        Args:
            row: the line. A key that is missing has missing values.
            events: number of events of the line.
            kept: indices of the events that are kept.

        Raises:
            ValueError: a value is not a list of as many categories or numbers; null is a missing value.
        """
        columns = [self._cells(row, key, events) for key in self.keys]
        for key in [key for key in self._missing if key in row]:
            del self._missing[key]
        split = len(self._codes)
        texts = [
            [_category(key, value) for value in cells]
            for key, cells in zip(self._settings.categories, columns, strict=False)
        ]
        numbers = [
            [_parse_feature_number(key, value) for value in cells]
            for key, cells in zip(self._settings.numbers, columns[split:], strict=True)
        ]
        for index in kept:
            for codes, column in zip(self._codes, texts, strict=True):
                text = column[index]
                self._of_categories.append(0 if text is None else codes.setdefault(text, len(codes) + 1))
            self._of_numbers.extend(column[index] for column in numbers)

    def columns(self, events: int) -> EventColumns:
        """Return the features of all events that were added."""
        codes = np.array(self._of_categories, np.int32).reshape(events, len(self._settings.categories))
        numbers = np.array(self._of_numbers, np.float64).reshape(events, len(self._settings.numbers))
        return EventColumns(codes, numbers, [list(codes_of) for codes_of in self._codes])

    def _cells(self, row: Mapping[str, Any], key: str, events: int) -> list[Any]:
        cells = row.get(key)
        if cells is None:
            return [None] * events
        if not isinstance(cells, list):
            raise ValueError(f"key {key!r}: found {preview_json(cells)}, expected a list with a value for each item")
        if len(cells) != events:
            raise ValueError(f"key {key!r}: found {len(cells)} values and {events} items, expected as many")
        return cells


def _category(key: str, value: Any) -> str | None:
    """Return a category as the text of a table has it; None if it is missing."""
    if isinstance(value, bool):
        # Polars writes booleans of a table as `true` and `false`. In Python a bool is an int, so it is tested first.
        return str(value).lower()
    if value is not None and not isinstance(value, int | str):
        raise ValueError(f"key {key!r}: found {preview_json(value)}, expected a category (text or an integer), or null")
    return None if value is None else str(value).strip() or None


def _parse_feature_number(key: str, value: Any) -> float:
    """Return a number; NaN if it is missing."""
    if value is None:
        return math.nan
    if not is_number(value):
        raise ValueError(f"key {key!r}: found {preview_json(value)}, expected a number, or null where it is missing")
    try:
        # JSON has integers of any size.
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(
            f"key {key!r}: found {preview_json(value)}, expected a finite number, or null where it is missing"
        )
    return number
