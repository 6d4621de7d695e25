"""Coding of event features for a network, by vocabularies and statistics of the training events.

Only events that are inputs of a training row count: a category that no input has would have a vector that is never
trained. Its code is 0, which also stands for a missing value. Numbers become ``(x - mean) / standard deviation``,
limited to [-5, 5]; a missing one stays NaN.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.batch import LARGEST_NUMBER, CodedNumber, EventCoding, FeaturesIdentity
from datamodules.recommender.events import EventColumns, Events, Integers
from datamodules.recommender.features.event_settings import EventFeatures
from datamodules.recommender.splits import Examples


class CodedEvents:
    """Codes of the features of given events.

    Args:
        coding: vocabularies and statistics.
        events: the events; those without features have missing values alone.
    """

    def __init__(self, coding: EventCoding, events: Events) -> None:
        self._coding, self._events = coding, events
        self._code_of: list[NDArray[np.int64]] = []
        if events.features is not None:
            for known, found in zip(coding.categories.values(), events.features.categories, strict=True):
                number = {name: code for code, name in enumerate(known, start=1)}
                self._code_of.append(np.array([0, *(number.get(name, 0) for name in found)], np.int64))

    def gather(self, starts: Integers, counts: Integers, width: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the features of the events ``starts[b]:starts[b] + counts[b]`` as row b.

        Returns:
            codes int64 [B, width, K], 0 where padded; numbers float32 [B, width, M], NaN where padded.
        """
        shape = (len(starts), width)
        codes = np.zeros((*shape, len(self._coding.categories)), np.int64)
        numbers = np.full((*shape, len(self._coding.numbers)), np.nan, np.float32)
        features = self._events.features
        if features is None:
            return codes, numbers
        real = np.arange(width) < counts[:, None]
        places = (starts[:, None] + np.arange(width))[real]
        for column, code_of in enumerate(self._code_of):
            codes[real, column] = code_of[features.codes[places, column]]
        for column, number in enumerate(self._coding.numbers.values()):
            numbers[real, column] = _standardised(features.numbers[places, column], number)
        return codes, numbers


def event_coding(settings: EventFeatures, events: Events, examples: Examples, chunk: int = 1 << 22) -> EventCoding:
    """Return the vocabularies and statistics of the inputs of training rows.

    Args:
        settings: names of the columns.
        events: events of all users, with these features.
        examples: the training rows, whose last events are targets alone.
        chunk: events that are processed at once.
    """
    features = events.features
    assert features is not None, "the store has the columns of the settings"
    is_input = _inputs(events, examples)
    categories = {}
    for column, (name, known) in enumerate(zip(settings.categories, features.categories, strict=True)):
        occurs = np.zeros(len(known) + 1, np.bool_)
        for start in range(0, len(is_input), chunk):
            part = slice(start, start + chunk)
            occurs[features.codes[part, column][is_input[part]]] = True
        categories[name] = [text for text, found in zip(known, occurs[1:].tolist(), strict=True) if found]
    numbers = {name: _statistics(features, column, is_input, chunk) for column, name in enumerate(settings.numbers)}
    return EventCoding(categories, numbers)


def coding_identity(coding: EventCoding) -> FeaturesIdentity:
    """Return what a network with event features depends on: names of the columns, and the coding."""
    columns = [f"categories {name}" for name in coding.categories] + [f"number {name}" for name in coding.numbers]
    digest = hashlib.sha256("\x1d".join("\x1f".join(names) for names in coding.categories.values()).encode())
    # Sums of floats differ by a rounding between machines.
    digest.update(repr([[f"{value:.6g}" for value in number] for number in coding.numbers.values()]).encode())
    return FeaturesIdentity(", ".join(columns), digest.hexdigest())


def _inputs(events: Events, examples: Examples) -> NDArray[np.bool_]:
    """Return bool [N]: which events are inputs of a training row."""
    change = np.zeros(len(events.items) + 1, np.int8)
    change[events.offsets[examples.users]] += 1
    change[np.asarray(examples.ends) - 1] -= 1
    return np.cumsum(change, dtype=np.int8)[:-1] > 0


def _statistics(features: EventColumns, column: int, is_input: NDArray[np.bool_], chunk: int) -> CodedNumber:
    """Return mean and standard deviation of a number over the inputs that have one: 0 and 1 if none has."""
    parts = [slice(start, start + chunk) for start in range(0, len(is_input), chunk)]

    def known(part: slice) -> NDArray[np.float64]:
        values = features.numbers[part, column][is_input[part]]
        return values[~np.isnan(values)]

    count = max(sum(len(known(part)) for part in parts), 1)
    mean = sum(float(known(part).sum()) for part in parts) / count
    variance = sum(float(((known(part) - mean) ** 2).sum()) for part in parts) / count
    return CodedNumber(mean, variance**0.5 or 1.0)


def _standardised(values: NDArray[np.float64], number: CodedNumber) -> NDArray[np.float64]:
    return ((values - number.mean) / number.deviation).clip(-LARGEST_NUMBER, LARGEST_NUMBER)
