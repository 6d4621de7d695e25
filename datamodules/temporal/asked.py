"""Questions that somebody asks about timelines of their own: what `predict` answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datamodules.multimodal.chat import Message
from datamodules.multimodal.chat_sets import ChatItem
from datamodules.multimodal.question_lines import read_questions
from datamodules.temporal.batch import Series, SeriesLayout
from datamodules.temporal.channels import CHANNELS, KEYS
from datamodules.temporal.recordings import Recording, check_capacities, read_csv
from datamodules.temporal.samples import PLACEHOLDER, SeriesPosition, place
from datamodules.temporal.source import Curves, collate

_FIELDS = {"question", "csv", "values", "capacities"}


class Asked(NamedTuple):
    """A line of the file."""

    where: str  # file and line
    record: dict[str, Any]  # as it was written
    question: str  # with the series' place
    curves: Curves


class AskedTimelines:
    """The lines of a JSONL file, in order.

    A line is an object with `question`, and either `csv`, the path of a timeline (see `recordings.read_csv`; relative
    to the file), or `values`, {channel: list of numbers or null} in the channels' units. `capacities`, {channel:
    number}, says how much a machine has; without it, it is the smallest that is sold and has what was measured.

    Raises:
        ValueError: names file and line of what cannot be read.
    """

    def __init__(self, path: Path, layout: SeriesLayout, position: SeriesPosition) -> None:
        self.path, self.layout, self.position = path, layout, position
        self.rows = [self._asked(where, record) for where, record in read_questions(path, _FIELDS)]

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.rows[index].where})"

    def item(self, epoch: int, index: int) -> ChatItem:
        row = self.rows[index]
        counts = (self.layout.count(len(row.curves[0])),)
        return ChatItem([Message(role="user", content=row.question)], counts, row.curves)

    def collate(self, items: Sequence[Curves]) -> Series:
        return collate(items, self.layout)

    def _asked(self, where: str, record: dict[str, Any]) -> Asked:
        question = record["question"]
        if PLACEHOLDER not in question:
            question = place(question.strip(), self.position)
        shares = self._recording(record, where).shares
        present = ~np.isnan(shares)
        return Asked(where, record, question, (np.nan_to_num(shares).astype(np.float32), present))

    def _recording(self, record: Mapping[str, Any], where: str) -> Recording:
        if ("csv" in record) == ("values" in record):
            raise ValueError(f"{where}: expected either csv, a file, or values, {{channel: numbers}}")
        capacities = record.get("capacities") or {}
        if not isinstance(capacities, Mapping):
            raise ValueError(f"{where}: capacities is {capacities!r}, expected {{channel: number}}")
        try:
            if "csv" in record:
                return read_csv(self.path.parent / str(record["csv"]), capacities)
            return from_values(record["values"], capacities)
        except (ValueError, OSError) as error:
            raise ValueError(f"{where}: {error}") from error


def from_values(values: Mapping[str, Sequence[float | None]], capacities: Mapping[str, float]) -> Recording:
    """A timeline from lists of numbers in the channels' units, None where nothing was measured.

    Raises:
        ValueError: an unknown channel, lists of different lengths, or a value below 0 or above the capacity.
    """
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"values is {values!r}, expected {{channel: numbers}}")
    unknown = values.keys() - set(KEYS)
    if unknown:
        raise ValueError(f"found the channels {', '.join(sorted(unknown))}, expected some of {', '.join(KEYS)}")
    strange = [key for key, column in values.items() if not isinstance(column, (list, tuple))]
    if strange:
        raise ValueError(f"{strange[0]}: found {values[strange[0]]!r}, expected a list of numbers")
    check_capacities(capacities)
    lengths = {key: len(column) for key, column in values.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        raise ValueError(f"values are of different lengths, or none: {lengths}")
    steps = max(lengths.values())
    shares = np.full((steps, len(KEYS)), np.nan)
    sizes = []
    for place_of, channel in enumerate(CHANNELS):
        try:
            column = np.array([np.nan if v is None else v for v in values.get(channel.key, ())], np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{channel.key}: expected numbers, and null where nothing was measured") from None
        if np.isinf(column).any():
            raise ValueError(f"{channel.key}: found {column[np.isinf(column)][0]}, expected numbers")
        most = float(np.nanmax(column)) if len(column) and not np.isnan(column).all() else 0.0
        sold = next((capacity for capacity in channel.capacities if capacity >= most), most)
        capacity = float(capacities.get(channel.key, sold))
        if len(column):
            outside = (column < 0) | (column > capacity)
            if outside.any():
                raise ValueError(f"{channel.key}: found {column[outside][0]:g}, expected 0 to {capacity:g}")
            shares[:, place_of] = column / capacity
        sizes.append(capacity)
    return Recording("", shares, tuple(sizes), 100)
