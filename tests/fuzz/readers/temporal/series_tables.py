"""A table of series, read by plain loops: the reference of `SeriesTables`."""

import csv
import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from tests.fuzz.reader import InvalidInput

STEPS = 200
"""Limit of the readers that are tested."""

_TIMES = {"time": 1.0, "timestamp": 1.0, "date": None, "datetime": None, "time_s": 1.0, "time_ms": 0.001}
_CELL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def table(data: bytes, columns: list[str] | None, step: float | None) -> list[tuple[Any, ...]]:
    rows = []
    for line in data.removeprefix(b"\xef\xbb\xbf").splitlines():
        if not line.strip():
            continue
        try:
            [cells] = csv.reader([line.decode()], strict=True)
        except (UnicodeDecodeError, csv.Error, ValueError) as error:
            raise InvalidInput(str(error)) from error
        rows.append([cell.strip() for cell in cells])
    header = rows[0] if rows else []
    if len(rows) < 2 or len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
        raise InvalidInput("rows differ in length, or names repeat")
    if any(not name or not name.isprintable() or "<series>" in name for name in header):
        raise InvalidInput("a name is empty")
    if all(map(_is_number, header)):
        raise InvalidInput("the names are numbers")
    time = next((index for index, name in enumerate(header) if name.lower() in _TIMES), None)
    channels = []
    for index, name in enumerate(header):
        match = re.fullmatch(r"(.*\S)\s*[(\[]([^()\[\]]*)[)\]]", name)
        if index != time:
            channels.append((index, *((match[1], match[2].strip()) if match else (name, ""))))
    if columns is not None:
        named = [[channel for channel in channels if column in (channel[1], header[channel[0]])] for column in columns]
        if not all(named):
            raise InvalidInput("a column is missing")
        channels = [matches[0] for matches in named]
    if not channels:
        raise InvalidInput("there is no channel")
    stamps = None
    if time is not None:
        cells: list[Any] = [row[time] for row in rows[1:]]
        seconds = _TIMES[header[time].lower()]
        if _is_number(cells[0]):
            if seconds is None:
                raise InvalidInput("a number is no date")
            cells = [_cell(cell) for cell in cells]
        stamps = stamps_of(cells, seconds or 1.0)
    series = []
    for index, name, unit in channels:
        values: list[float | None] = [_cell(row[index]) for row in rows[1:]]
        if any(value is not None and abs(value) > 1e100 for value in values):
            raise InvalidInput("a value is too large")
        length: float | None = step
        if stamps is not None:
            values, length = resampled(stamps, values, step)
        if len(values) > STEPS:
            raise InvalidInput("a series is too long")
        series.append((name, unit, length, values))
    return series


def resampled(
    stamps: list[float], values: Sequence[float | None], step: float | None
) -> tuple[list[float | None], float | None]:
    distances = [later - earlier for earlier, later in zip(stamps, stamps[1:], strict=False)]
    if any(distance < 0 for distance in distances):
        raise InvalidInput("stamps go down")
    apart = sorted(distance for distance in distances if distance)
    if step is None:
        step = apart[(len(apart) - 1) // 2] if apart else None
    if step is None:
        kept = [value for value in values if value is not None]
        return [math.fsum(kept) / len(kept) if kept else None], None
    if (stamps[-1] - stamps[0]) / step >= STEPS - 0.5:
        raise InvalidInput("stamps span too many steps")
    slots = [math.floor((stamp - stamps[0]) / step + 0.5) for stamp in stamps]
    cells: list[list[float]] = [[] for _ in range(slots[-1] + 1)]
    for slot, value in zip(slots, values, strict=True):
        if value is not None:
            cells[slot].append(value)
    return [math.fsum(cell) / len(cell) if cell else None for cell in cells], step


def stamps_of(found: Any, seconds: float) -> list[float]:
    if not isinstance(found, list) or not found:
        raise InvalidInput("times is no list")
    if isinstance(found[0], str):
        try:
            moments = [datetime.fromisoformat(stamp.strip().replace("Z", "+00:00")) for stamp in found]
        except (ValueError, AttributeError) as error:
            raise InvalidInput(str(error)[:100]) from error
        return [(m if m.tzinfo else m.replace(tzinfo=timezone.utc)).timestamp() for m in moments]
    if any(type(stamp) not in (int, float) or not abs(stamp * seconds) <= 1e15 for stamp in found):
        raise InvalidInput("a stamp is no number")
    return [float(stamp) * seconds for stamp in found]


def step_of(found: Any) -> float | None:
    if found is None:
        return None
    if type(found) not in (int, float) or not 0 < found <= 1e15:
        raise InvalidInput("step is no number above 0")
    return float(found)


def _cell(cell: str) -> float | None:
    if not cell or cell.lower() in ("nan", "null"):
        return None
    if not _is_number(cell) or not math.isfinite(float(cell)):
        raise InvalidInput(f"it has the cell {cell[:40]!r}")
    return float(cell)


def _is_number(cell: str) -> bool:
    return _CELL.fullmatch(cell) is not None
