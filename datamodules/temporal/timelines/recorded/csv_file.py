"""Reads a timeline from a CSV file: every row of it, or an error that names file and line."""

import csv
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.series.resampling import resample
from datamodules.temporal.timelines.channels import CHANNELS, KEYS
from datamodules.temporal.timelines.recorded.recording import (
    MAX_CAPACITY,
    Recording,
    check_capacities,
    covering_capacity,
)
from engine.io.csv_error import describe_csv_error
from engine.io.json_records import describe_line, describe_names, describe_undecodable, iterate_lines
from engine.io.unterminated_line import warn_if_unterminated

_TIME = "time_ms"
_EXPECTED = f"a CSV file in UTF-8 with the columns {_TIME} and channels"

_MAX_STEPS = 10_000_000
"""Largest number of steps of a recording, with missing steps; eleven days at 100 ms."""

_LATEST = 1e15
"""Largest time, in milliseconds: up to it, all whole numbers are exact in float64."""

_SPARSEST = 0.1
"""Smallest share of measured steps at which the smallest distance of two rows is taken for the duration of a step."""


def read_csv(path: Path, capacities: Mapping[str, float] | None = None, step_ms: int | None = None) -> Recording:
    """Read a timeline of available resources: a column `time_ms`, and one column per measured channel.

    Missing rows and empty cells are missing samples.

    Args:
        path: the file; its first line has the names of the columns.
        capacities: {channel: capacity in its unit}; the default is the smallest common capacity (`channels.CHANNELS`)
            that covers the measurements.
        step_ms: duration of a step that irregular times are resampled to, by the rule of `series.resampling`; None for
            the smallest distance of two rows, of which all times are multiples.

    Raises:
        ValueError: the file is not UTF-8 text, has unknown columns, cells that are not numbers, times that do not
            increase in whole steps, or values below 0 or above the capacity. The message names file and line.
        OSError: the file cannot be read.
    """
    path = Path(path)
    check_capacities(capacities or {})
    lines = _iterate_rows(path)
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path}: found an empty file, expected a line with {_TIME} and the names of channels")
    columns = _columns(f"{path}, line {first[0]}", first[1])
    numbers, rows = _rows(path, columns, lines)
    if len(rows) < 2:
        raise ValueError(f"{path}: found {len(rows)} lines of values, expected 2 or more")
    measured = np.full((len(rows), len(KEYS)), np.nan)
    for k, key in enumerate(KEYS):
        if key in columns:
            measured[:, k] = rows[:, columns.index(key)]
    largest = tuple(
        float((capacities or {}).get(channel.key) or covering_capacity(channel, measured[:, k]))
        for k, channel in enumerate(CHANNELS)
    )
    limits = np.minimum(largest, MAX_CAPACITY)
    outside = (measured < 0) | (measured > limits)
    if outside.any():
        row, k = (int(index) for index in np.argwhere(outside)[0])
        raise ValueError(
            f"{path}, line {numbers[row]}, {KEYS[k]}: found {measured[row, k]:g}, expected 0 to {limits[k]:g}"
        )
    times = rows[:, columns.index(_TIME)]
    if step_ms is not None:
        return Recording(
            path.stem, _resample(path, numbers, times, measured, step_ms) / np.array(largest), largest, step_ms
        )
    steps, smallest_ms = _steps(path, numbers, times)
    # Steps without a row stay NaN, which means missing.
    shares = np.full((steps[-1] + 1, len(KEYS)), np.nan)
    shares[steps] = measured / np.array(largest)
    return Recording(path.stem, shares, largest, smallest_ms)


def _resample(
    path: Path, numbers: NDArray[np.int64], times: NDArray[np.float64], measured: NDArray[np.float64], step_ms: int
) -> NDArray[np.float64]:
    """Return the measurements at steps of `step_ms`."""
    seconds = step_ms / 1000
    try:
        columns = [resample(times / 1000, column, seconds, _MAX_STEPS).values for column in measured.T]
    except ValueError as error:
        raise ValueError(f"{path}, from line {numbers[0]}, {_TIME} in seconds: {error}") from error
    return np.stack(columns, 1)


def _iterate_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each non-blank line.

    Each line is split alone, so a stray quote cannot join it with the lines after it.
    """
    for number, line in iterate_lines(path, _EXPECTED):
        where = f"{path}, line {number}"
        if b"\0" in line:
            raise ValueError(f"{where}: found a NUL byte in {describe_line(line)}, expected {_EXPECTED}")
        try:
            (cells,) = csv.reader([line.decode()], strict=True)
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: {describe_undecodable(error)}, expected {_EXPECTED}") from error
        except csv.Error as error:
            raise ValueError(f"{where}: found {describe_line(line)}, {describe_csv_error(error)}") from error
        yield number, [cell.strip() for cell in cells]
    warn_if_unterminated(path)


def _columns(where: str, names: Sequence[str]) -> Sequence[str]:
    invalid = [name for name in names if name not in (_TIME, *KEYS)]
    if invalid or _TIME not in names or len(set(names)) < len(names) or len(names) < 2:
        raise ValueError(
            f"{where}: found the columns {describe_names(names)}, expected {_TIME} and some of {', '.join(KEYS)}, each "
            "once"
        )
    return names


def _rows(
    path: Path, columns: Sequence[str], lines: Iterator[tuple[int, list[str]]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the line number of each row [n] and its values [n, columns], NaN where a cell is empty."""
    # Arrays of C numbers, because lists of Python objects take several times the memory for millions of rows.
    numbers, values = array("q"), array("d")
    for number, cells in lines:
        where = f"{path}, line {number}"
        if len(numbers) == _MAX_STEPS:
            raise ValueError(f"{where}: found more than {_MAX_STEPS:,} rows; split the file")
        if len(cells) != len(columns):
            raise ValueError(f"{where}: found {len(cells)} cells, expected {len(columns)}")
        numbers.append(number)
        values.extend(_parse_cell(where, name, cell) for name, cell in zip(columns, cells, strict=True))
    return np.array(numbers, np.int64), np.array(values).reshape(-1, len(columns))


def _parse_cell(where: str, name: str, cell: str) -> float:
    try:
        value = math.nan if not cell else math.inf if "_" in cell or not cell.isascii() else float(cell)  # 1_0, １０
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise ValueError(f"{where}, {name}: found {cell[:60]!r}, expected a number or nothing")
    if name == _TIME and not abs(value) < _LATEST:
        raise ValueError(f"{where}, {_TIME}: found {cell!r}, expected a number of milliseconds")
    return value


def _steps(path: Path, numbers: NDArray[np.int64], times: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Return the step of each row, and the duration of a step in milliseconds, the smallest distance of two rows."""
    distances = np.diff(times)

    def at(row: int) -> str:
        return f"{path}, line {numbers[row]}, {_TIME}"

    if (distances <= 0).any():
        row = int((distances <= 0).argmax())
        raise ValueError(f"{at(row + 1)}: found a step of {distances[row]:g} ms, expected times to go up")
    row, step = int(distances.argmin()) + 1, float(distances.min())
    if step != round(step):
        raise ValueError(f"{at(row)}: found a step of {step:g} ms, expected whole milliseconds")
    # Rows may be missing, so the smallest distance is the step, if the others are multiples of it.
    total = float(times[-1] - times[0]) / step
    steps = np.round((times - times[0]) / step)
    uneven = times - times[0] != steps * step
    # If most distances are larger and the file would be mostly gaps, the smallest distance is an irregular row.
    lengths, counts = np.unique(distances, return_counts=True)
    usual = float(lengths[counts.argmax()])
    if usual > step and (uneven.any() or len(times) < _SPARSEST * total):
        row = int((distances % usual != 0).argmax()) + 1
        raise ValueError(
            f"{at(row)}: found a step of {distances[row - 1]:g} ms, but most steps are {usual:g} ms; expected steps of "
            "one length, of which rows may be missing: set data.init_args.timelines_step_ms, or resample the file"
        )
    if not total < _MAX_STEPS:
        widest = int(distances.argmax())
        raise ValueError(
            f"{at(widest + 1)}: found a gap of {distances[widest]:g} ms, so the file has {total:,.0f} steps of "
            f"{step:g} ms; expected at most {_MAX_STEPS:,}: split the file at the gap"
        )
    if uneven.any():
        row = int(uneven.argmax())
        raise ValueError(f"{at(row)}: found {times[row]:g}, expected whole steps of {step:g} ms")
    return steps.astype(np.int64), round(step)
