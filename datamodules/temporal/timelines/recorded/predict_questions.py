"""Reads questions for `predict` about timelines of the user."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem, ChatSource
from datamodules.multimodal.predict_questions import read_questions
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.temporal.batch import Series, SeriesLayout
from datamodules.temporal.series_marker import PLACEHOLDER, SeriesPosition, insert_series_marker
from datamodules.temporal.timelines.channels import CHANNELS, KEYS
from datamodules.temporal.timelines.dataset import Curves, collate_timelines
from datamodules.temporal.timelines.recorded.csv_file import read_csv
from datamodules.temporal.timelines.recorded.recording import (
    MAX_CAPACITY,
    Recording,
    check_capacities,
    covering_capacity,
)
from engine.io.json_records import describe_names, describe_value
from engine.number_check import is_number

_FIELDS = {"question", "csv", "values", "capacities"}


class TimelinePredictRow(NamedTuple):
    """A question of the file, with the window of the timeline that it is about."""

    where: str  # file and line
    record: dict[str, Any]  # the object on the line
    question: str  # with the marker of the series
    curves: Curves
    capacities: tuple[float, ...]  # [4] of the machine, in the channels' units


class TimelinePredictDataset(ChatSource):
    """Lines of a JSONL file, in order.

    A line is an object with `question`, and either `csv`, the path of a timeline (see `csv_file.read_csv`; relative to
    the file), or `values`, {channel: list of numbers or null} in the channels' units. `capacities`, {channel: number},
    sets the capacities of the machine; the default is the smallest common capacity that covers the measurements.

    Args:
        path: the file.
        layout: layout of a series.
        position: order of question and series.

    Raises:
        ValueError: a line is invalid; the message names file and line.
    """

    def __init__(self, path: Path, layout: SeriesLayout, position: SeriesPosition) -> None:
        self.path, self.layout, self.position = path, layout, position
        self.rows = [self._parse_row(where, record) for where, record in read_questions(path, _FIELDS)]

    @override
    def __len__(self) -> int:
        return len(self.rows)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.rows[index].where})"

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        row = self.rows[index]
        counts = (self.layout.feature_count(len(row.curves[0])),)
        return ChatItem([Message(role="user", content=row.question)], counts, row.curves)

    @override
    def collate(self, items: Sequence[Curves]) -> Series:
        return collate_timelines(items, self.layout)

    def _parse_row(self, where: str, record: dict[str, Any]) -> TimelinePredictRow:
        question = record["question"]
        if question.count(PLACEHOLDER) > 1:
            raise ValueError(f"{where}: question has {PLACEHOLDER} {question.count(PLACEHOLDER)} times, expected once")
        if PLACEHOLDER not in question:
            question = insert_series_marker(question.strip(), self.position)
        recording = self._recording(record, where)
        shares = recording.shares
        present = ~np.isnan(shares)
        curves = np.nan_to_num(shares).astype(np.float32), present
        return TimelinePredictRow(where, record, question, curves, recording.capacities)

    def _recording(self, record: Mapping[str, Any], where: str) -> Recording:
        if ("csv" in record) == ("values" in record):
            raise ValueError(f"{where}: expected either csv, a file, or values, {{channel: numbers}}")
        capacities = {} if record.get("capacities") is None else record["capacities"]
        if not isinstance(capacities, Mapping):
            raise ValueError(f"{where}: capacities is {describe_value(capacities)}, expected {{channel: number}}")
        if not isinstance(record.get("csv", "a path"), str):
            raise ValueError(f"{where}: csv is {describe_value(record['csv'])}, expected the path of a file")
        try:
            if "csv" in record:
                return read_csv(self.path.parent / record["csv"], capacities)
            return from_values(record["values"], capacities)
        except (ValueError, OSError) as error:
            raise ValueError(f"{where}: {error}") from error


def from_values(values: Mapping[str, Sequence[float | None]], capacities: Mapping[str, float]) -> Recording:
    """Return a timeline from lists of numbers in the channels' units, None where a measurement is missing.

    Raises:
        ValueError: an unknown channel, lists of different lengths, or a value below 0 or above the capacity.
    """
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"values is {describe_value(values)}, expected {{channel: numbers}}")
    unknown = values.keys() - set(KEYS)
    if unknown:
        raise ValueError(f"found the channels {describe_names(sorted(unknown))}, expected some of {', '.join(KEYS)}")
    invalid = [key for key, column in values.items() if not isinstance(column, (list, tuple))]
    if invalid:
        raise ValueError(f"{invalid[0]}: found {describe_value(values[invalid[0]])}, expected a list of numbers")
    check_capacities(capacities)
    lengths = {key: len(column) for key, column in values.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        raise ValueError(f"values are of different lengths, or none: {lengths}")
    steps = max(lengths.values())
    shares = np.full((steps, len(KEYS)), np.nan)
    sizes = []
    for index, channel in enumerate(CHANNELS):
        column = _column(channel.key, values.get(channel.key, ()))
        capacity = float(capacities.get(channel.key, covering_capacity(channel, column)))
        if len(column):
            outside = (column < 0) | (column > min(capacity, MAX_CAPACITY))
            if outside.any():
                raise ValueError(
                    f"{channel.key}: found {column[outside][0]:g}, expected 0 to {min(capacity, MAX_CAPACITY):g}"
                )
            shares[:, index] = column / capacity
        sizes.append(capacity)
    # Name and duration of a step are not used: a TimelinePredictRow has neither.
    return Recording("", shares, tuple(sizes), 100)


def _column(key: str, values: Sequence[float | None]) -> NDArray[np.float64]:
    """Return the values of a channel, NaN where nothing was measured."""
    for value in values:
        if value is not None and not is_number(value):
            raise ValueError(
                f"{key}: expected numbers, and null where nothing was measured; found {describe_value(value)}"
            )
    column = np.array([np.nan if value is None else float(value) for value in values], np.float64)
    if np.isinf(column).any():
        raise ValueError(f"{key}: found {column[np.isinf(column)][0]}, expected numbers")
    return column
