"""Encodes features of events for a loaded export, and converts their encoding to config.json and back."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor

from datamodules.recommender.batch import LARGEST_NUMBER, EventEncoding, NumberStatistics
from engine.number_check import is_number
from lightning_modules.recommender.networks.inputs.event_features import EventFeatureSizes

Values = Mapping[str, Sequence[str | int | float | None]]
"""Value of each event, the oldest first, by the name of the column; None is a missing value."""


class EventEncodingSettings(TypedDict):
    """Form of an EventEncoding in config.json."""

    categories: dict[str, list[str]]
    numbers: dict[str, dict[str, float]]
    largest_number: float  # standardized numbers are limited to it and to its negative


def event_feature_sizes(encoding: EventEncoding | None) -> EventFeatureSizes | None:
    """Return the sizes of an encoding; None without event features."""
    if encoding is None:
        return None
    return {"categories": [len(names) for names in encoding.categories.values()], "numbers": len(encoding.numbers)}


def event_encoding_settings(encoding: EventEncoding) -> EventEncodingSettings:
    """Return an encoding for config.json."""
    return {
        "categories": {name: list(known) for name, known in encoding.categories.items()},
        "numbers": {name: number._asdict() for name, number in encoding.numbers.items()},
        "largest_number": LARGEST_NUMBER,
    }


def event_encoding_of(settings: EventEncodingSettings) -> EventEncoding:
    """Return the encoding that `event_encoding_settings` has written."""
    numbers = {name: NumberStatistics(**number) for name, number in settings["numbers"].items()}
    return EventEncoding(settings["categories"], numbers)


def encode_events(
    encoding: EventEncoding, values: Values | None, indices: Sequence[int], events: int
) -> tuple[Tensor, Tensor]:
    """Encode the features of a history.

    Args:
        encoding: vocabularies and statistics.
        values: the features; a column that is missing has missing values.
        indices: [L] indices of the events that are read.
        events: number of events of the history.

    Returns:
        codes [1, L, K] int64 and numbers [1, L, M] float32, as of History.

    Raises:
        ValueError: the model has no such column, a column has another number of values, or a value is invalid.
    """
    values = values or {}
    column_names = [*encoding.categories, *encoding.numbers]
    for name, column in values.items():
        if name not in column_names:
            raise ValueError(f"features: found the key {name!r}, expected some of {', '.join(column_names)}")
        if len(column) != events:
            raise ValueError(f"features[{name!r}]: found {len(column)} values and {events} items, expected as many")
    empty: list[None] = [None] * events
    # Code 0: missing, or unknown to the training.
    codes = torch.zeros(1, len(indices), len(encoding.categories), dtype=torch.int64)
    for number, (name, names) in enumerate(encoding.categories.items()):
        code_of = {text: code for code, text in enumerate(names, start=1)}
        column = values.get(name, empty)
        codes[0, :, number] = torch.tensor([code_of.get(_parse_category(name, column[index]), 0) for index in indices])
    numbers = torch.zeros(1, len(indices), len(encoding.numbers))
    for number, (name, (mean, deviation)) in enumerate(encoding.numbers.items()):
        column = values.get(name, empty)
        # It is float64 until it is standardized: in float32 a value near a large mean loses its digits.
        known_values = torch.tensor([_parse_number(name, column[index]) for index in indices], dtype=torch.float64)
        numbers[0, :, number] = ((known_values - mean) / deviation).clamp(-LARGEST_NUMBER, LARGEST_NUMBER)
    return codes, numbers


def _parse_category(name: str, value: Any) -> str:
    """Return a category as a table has it; "" if it is missing."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | None):
        raise ValueError(f"features[{name!r}]: found {value!r}, expected a category (text or an integer), or None")
    return "" if value is None else str(value).strip()  # as tables are read


def _parse_number(name: str, value: Any) -> float:
    if value is None:
        return math.nan
    try:
        number = float(value) if is_number(value) else math.nan
    except OverflowError:  # an integer beyond float64
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"features[{name!r}]: found {str(value)[:60]!r}, expected a finite number, or None")
    return number
