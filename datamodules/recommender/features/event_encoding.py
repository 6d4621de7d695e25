"""Encodes event features for a network, by vocabularies and statistics of the training events.

Only events that are inputs of a training row count: a category that no input has would have a vector that is never
trained. Its code is 0, which also stands for a missing value. Numbers become `(x - mean) / standard deviation`,
limited to [-5, 5]; a missing number stays NaN.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.batch import LARGEST_NUMBER, EventEncoding, FeaturesIdentity, NumberStatistics
from datamodules.recommender.events import EventColumns, Events, Integers
from datamodules.recommender.features.event_feature_settings import EventFeatures
from datamodules.recommender.features.item_encoding import SMALLEST_DEVIATION
from datamodules.recommender.splits import SplitExamples


class EncodedEvents:
    """Codes of the features of given events.

    Args:
        encoding: vocabularies and statistics.
        events: the events; those without features have missing values alone.
    """

    def __init__(self, encoding: EventEncoding, events: Events) -> None:
        self._encoding, self._events = encoding, events
        self._code_of: list[NDArray[np.int64]] = []
        if events.features is not None:
            for known, found in zip(encoding.categories.values(), events.features.categories, strict=True):
                number = {name: code for code, name in enumerate(known, start=1)}
                # Translates the events' codes into the vocabulary's: 0 (missing) and unknown categories become 0.
                self._code_of.append(np.array([0, *(number.get(name, 0) for name in found)], np.int64))

    def gather(self, starts: Integers, counts: Integers, width: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the features of the events `starts[b]:starts[b] + counts[b]` as row b.

        Returns:
            codes int64 [B, width, K], 0 where padded; numbers float32 [B, width, M], NaN where padded.
        """
        shape = (len(starts), width)
        codes = np.zeros((*shape, len(self._encoding.categories)), np.int64)
        numbers = np.full((*shape, len(self._encoding.numbers)), np.nan, np.float32)
        features = self._events.features
        if features is None:
            return codes, numbers
        real = np.arange(width) < counts[:, None]
        rows = (starts[:, None] + np.arange(width))[real]
        for column, code_of in enumerate(self._code_of):
            codes[real, column] = code_of[features.codes[rows, column]]
        for column, number in enumerate(self._encoding.numbers.values()):
            numbers[real, column] = _standardize(features.numbers[rows, column], number)
        return codes, numbers


def fit_event_encoding(
    settings: EventFeatures,
    events: Events,
    examples: SplitExamples,
    max_length: int | None = None,
    chunk: int = 1 << 20,
) -> EventEncoding:
    """Return the vocabularies and statistics of the inputs of training rows.

    Args:
        settings: names of the columns.
        events: events of all users, with these features.
        examples: the training rows, whose last events are targets alone.
        max_length: number of the last inputs of a row that are trained; None if all are, in random windows.
        chunk: events that are processed at once.
    """
    features = events.features
    assert features is not None, "the store has the columns of the settings"
    is_input = _inputs(events, examples, max_length)
    categories = {}
    for column, (name, texts) in enumerate(zip(settings.categories, features.categories, strict=True)):
        occurs = np.zeros(len(texts) + 1, np.bool_)
        for start in range(0, len(is_input), chunk):
            part = slice(start, start + chunk)
            occurs[features.codes[part, column][is_input[part]]] = True
        categories[name] = [text for text, found in zip(texts, occurs[1:].tolist(), strict=True) if found]
    numbers = {name: _statistics(features, column, is_input, chunk) for column, name in enumerate(settings.numbers)}
    return EventEncoding(categories, numbers)


def encoding_identity(encoding: EventEncoding) -> FeaturesIdentity:
    """Return what a network with event features depends on: names of the columns, and the encoding."""
    columns = [f"categories {name}" for name in encoding.categories] + [f"number {name}" for name in encoding.numbers]
    # Two separators, so that ("a", "b") and ("a",), ("b",) have different hashes.
    digest = hashlib.sha256("\x1d".join("\x1f".join(names) for names in encoding.categories.values()).encode())
    # A mean has the scale of its deviation: rounded, 1e-17 and -1e-17 are equal if the numbers are about 1.
    means = [(round(number.mean / number.deviation, 6) + 0.0, number.deviation) for number in encoding.numbers.values()]
    digest.update(repr([[f"{value:.6g}" for value in pair] for pair in means]).encode())
    return FeaturesIdentity(", ".join(columns), digest.hexdigest())


def _inputs(events: Events, examples: SplitExamples, max_length: int | None) -> NDArray[np.bool_]:
    """Return bool [N]: which events are inputs of a training row."""
    # 1 where the inputs of a row begin and -1 after they end: the running sum is positive inside a row.
    change = np.zeros(len(events.items) + 1, np.int8)
    starts, ends = np.asarray(events.offsets)[examples.users], np.asarray(examples.ends) - 1
    change[starts if max_length is None else np.maximum(starts, ends - max_length)] += 1
    change[ends] -= 1
    return np.cumsum(change, dtype=np.int8)[:-1] > 0


def _statistics(features: EventColumns, column: int, is_input: NDArray[np.bool_], chunk: int) -> NumberStatistics:
    """Return mean and standard deviation of a number over the inputs that have it: 0 and 1 if none has it."""
    parts = [slice(start, start + chunk) for start in range(0, len(is_input), chunk)]

    def known(part: slice) -> NDArray[np.float64]:
        values = features.numbers[part, column][is_input[part]]
        return values[~np.isnan(values)]

    largest = max((float(np.abs(values).max()) for values in map(known, parts) if len(values)), default=0.0)
    if not largest:
        return NumberStatistics(0.0, 1.0)
    exponent = math.frexp(largest)[1]

    def mean_of(term: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
        # Numbers are scaled to [-1, 1] by a power of two, which is exact, so that no square or sum overflows.
        return _mean(term(np.ldexp(known(part), -exponent)) for part in parts)

    mean = mean_of(lambda values: values)
    deviation = math.sqrt(mean_of(lambda values: (values - mean) * (values - mean)))
    equal = deviation <= SMALLEST_DEVIATION * math.ldexp(largest, -exponent)
    return NumberStatistics(math.ldexp(mean, exponent), 1.0 if equal else math.ldexp(deviation, exponent))


def _mean(parts: Iterable[NDArray[np.float64]]) -> float:
    """Return the mean of numbers from an exact sum, so that neither their order nor the parts change it."""
    count = 0

    def numbers() -> Iterator[float]:
        nonlocal count
        for part in parts:
            count += len(part)
            yield from part.tolist()

    total = math.fsum(numbers())
    return total / count


def _standardize(values: NDArray[np.float64], number: NumberStatistics) -> NDArray[np.float64]:
    return ((values - number.mean) / number.deviation).clip(-LARGEST_NUMBER, LARGEST_NUMBER)
