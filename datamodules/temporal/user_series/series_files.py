"""Reads series from a table: a column of stamps, and a column for each channel, `name (unit)`.

The column of stamps is the first one of `time`, `timestamp`, `time_s` (seconds, or dates and times in ISO 8601),
`time_ms` (milliseconds), `date` and `datetime` (dates and times alone). Without it, the rows are steps of unknown
length. The rule of `series.resampling` makes irregular stamps regular; an empty cell is a gap.
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.series.resampling import resample
from datamodules.temporal.series.series_question import InputSeries, SeriesLimits
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.user_series.record_fields import MOST_SECONDS, measurements, stamps
from engine.io.csv_error import describe_csv_error
from engine.io.json_records import describe_names, describe_undecodable, iterate_lines
from engine.io.unterminated_line import warn_if_unterminated

TIMES = {"time": 1.0, "timestamp": 1.0, "date": None, "datetime": None, "time_s": 1.0, "time_ms": 0.001}
"""Names of a column of stamps, and the seconds of a unit of its numbers; None: a number is not a date (20240501)."""

_CHANNEL = re.compile(r"(.*\S)\s*[(\[]([^()\[\]]*)[)\]]")
_ROWS_A_STEP = 100
_CACHED = 8
"""Number of tables that are cached, as neighboring records often name the same table."""


class _Table(NamedTuple):
    columns: list[str]
    cells: list[list[str]]  # by column
    lines: list[int]


class SeriesFiles:
    """Series files below a folder.

    Args:
        folder: folder that names are relative to.
        limits: largest sizes; a file has at most a hundred rows for each step that is read.
    """

    def __init__(self, folder: Path, limits: SeriesLimits) -> None:
        self._folder, self._limits = folder, limits
        self._tables: dict[Path, _Table] = {}

    def read(self, key: str, name: str, columns: Sequence[str] | None, step: float | None) -> list[InputSeries]:
        """Return the series of a CSV file, in the order of its columns.

        Args:
            key: key of the record, for messages.
            name: path, relative to the folder.
            columns: columns to read, by their name with or without unit; None for all.
            step: length of a step in seconds, see `resample`.

        Raises:
            ValueError: the file does not exist or is invalid; the message names file, line and column.
            OSError: the file cannot be read.
        """
        # The file system functions raise on a NUL byte; the name is reported as a file that does not exist.
        path = self._folder / name if "\0" not in name else Path("\\0")
        if path.suffix.lower() != ".csv" or not path.is_file():
            raise ValueError(f"{key}: found {name[:200]!r}, expected the path of a .csv file that exists")
        table = self._table(path)
        times = next((index for index, column in enumerate(table.columns) if column.lower() in TIMES), None)
        channels = {index: _channel(column) for index, column in enumerate(table.columns) if index != times}
        if times is None:
            self._require_no_stamps(path, table, channels)
        indices = list(channels)
        if columns is not None:
            indices = [self._index(path, table, channels, column) for column in columns]
        if not indices:
            raise ValueError(f"{path}, line {table.lines[0]}: found no column of a channel, expected name (unit)")
        seconds = None if times is None else self._times(path, table, times)
        return [self._series(path, table, index, channels[index], seconds, step) for index in indices]

    @staticmethod
    def _index(path: Path, table: _Table, channels: Mapping[int, tuple[str, str]], column: str) -> int:
        """Return the index of the column of a name, with or without its unit."""
        whole = [index for index in channels if table.columns[index] == column]
        found = whole or [index for index, (short, _) in channels.items() if short == column]
        if len(found) == 1:
            return found[0]
        where = f"{path}, line {table.lines[0]}: column {column[:100]!r}"
        if found:
            several = describe_names([table.columns[index] for index in found])
            raise ValueError(f"{where} is one of {several}; give the name with its unit")
        raise ValueError(f"{where} not found, expected some of {describe_names(table.columns)}")

    @staticmethod
    def _require_no_stamps(path: Path, table: _Table, channels: Mapping[int, tuple[str, str]]) -> None:
        """Refuse stamps that have a unit as a channel has: `time (s)` would be read as measurements."""
        misnamed = [table.columns[index] for index, (name, unit) in channels.items() if unit and name.lower() in TIMES]
        if misnamed:
            raise ValueError(
                f"{path}, line {table.lines[0]}: found the column {misnamed[0]!r}, expected stamps in a column "
                f"{', '.join(TIMES)}, without a unit; rename it, to time_ms if these are milliseconds"
            )

    def _series(
        self, path: Path, table: _Table, index: int, channel: tuple[str, str], times: NDArray[np.float64] | None,
        step: float | None,
    ) -> InputSeries:  # fmt: skip
        column = [_parse_cell(path, table, index, row) for row in range(len(table.cells[index]))]
        values = measurements(f"{path}, column {table.columns[index]}", column)
        if times is not None:
            try:
                values, step = resample(times, values, step, self._limits.steps)
            except ValueError as error:
                raise ValueError(f"{path}, from line {table.lines[1]}: {error}") from error
        if len(values) > self._limits.steps:
            raise ValueError(
                f"{path}: found {len(values):,} rows, expected at most limits.steps ({self._limits.steps:,})"
            )
        return InputSeries(*channel, values, step)

    def _times(self, path: Path, table: _Table, index: int) -> NDArray[np.float64]:
        cells, name = table.cells[index], table.columns[index]
        numeric = _is_number(cells[0])
        unit = TIMES[name.lower()]
        if numeric and unit is None:
            raise ValueError(
                f"{path}, line {table.lines[1]}, {name}: found {cells[0][:60]!r}, expected a date such as 2024-05-01; "
                "a column of seconds is named time"
            )
        column = [_parse_cell(path, table, index, row) if numeric else cell for row, cell in enumerate(cells)]
        if numeric and unit == 1.0:
            self._check_seconds(path, table, name, column)
        try:
            return stamps(name, column, unit or 1.0)
        except ValueError as error:
            # `stamps` names an entry by its index in the column; the message names the line of the file instead.
            row = re.match(r".*?\[(\d+)\]", str(error))
            line = table.lines[1 + int(row[1])] if row else table.lines[1]
            raise ValueError(f"{path}, line {line}: {error}") from error

    @staticmethod
    def _check_seconds(path: Path, table: _Table, name: str, column: Sequence[float | str | None]) -> None:
        for row, stamp in enumerate(column):
            if isinstance(stamp, float) and abs(stamp) > MOST_SECONDS:
                raise ValueError(
                    f"{path}, line {table.lines[row + 1]}, {name}: found {stamp:.0f}, which is no time of this era in "
                    "seconds; divide the numbers, or name the column time_ms if these are milliseconds"
                )

    def _table(self, path: Path) -> _Table:
        if path not in self._tables:
            if len(self._tables) >= _CACHED:
                # A dict keeps the order of insertion, so this is the oldest table.
                self._tables.pop(next(iter(self._tables)))
            self._tables[path] = _read_table(path, self._limits)
        return self._tables[path]


def _read_table(path: Path, limits: SeriesLimits) -> _Table:
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, data in iterate_lines(path, "a CSV file in UTF-8 with a line of names"):
        where = f"{path}, line {line}"
        try:
            [cells] = csv.reader([data.decode()], strict=True)
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: {describe_undecodable(error)}") from error
        except csv.Error as error:
            raise ValueError(f"{where}: found {describe_csv_error(error)}") from error
        if rows and len(cells) != len(rows[0]):
            raise ValueError(f"{where}: found {len(cells)} cells, expected {len(rows[0])}")
        if len(rows) > _ROWS_A_STEP * limits.steps:
            raise ValueError(f"{where}: found more than {len(rows) - 1:,} rows; raise limits.steps or split the file")
        rows.append([cell.strip() for cell in cells])
        lines.append(line)
    if len(rows) < 2:
        raise ValueError(f"{path}: found {len(rows)} lines, expected a line of names and one or more of values")
    if len(set(rows[0])) < len(rows[0]) or not all(
        name and name.isprintable() and PLACEHOLDER not in name for name in rows[0]
    ):
        raise ValueError(
            f"{path}, line {lines[0]}: found the columns {describe_names(rows[0])}, expected names, each once"
        )
    if all(map(_is_number, rows[0])):  # else the first row of a table without names would be lost
        raise ValueError(
            f"{path}, line {lines[0]}: found the numbers {describe_names(rows[0])}, expected a line of names"
        )
    warn_if_unterminated(path)
    return _Table(rows[0], [list(column) for column in zip(*rows[1:], strict=True)], lines)


def _channel(column: str) -> tuple[str, str]:
    """Return the name and the unit of a column."""
    match = _CHANNEL.fullmatch(column)
    return (match[1], match[2].strip()) if match else (column, "")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell


def _parse_cell(path: Path, table: _Table, index: int, row: int) -> float | None:
    cell = table.cells[index][row]
    if not cell or cell.lower() in ("nan", "null"):
        return None
    if not _is_number(cell) or not math.isfinite(float(cell)):
        raise ValueError(
            f"{path}, line {table.lines[row + 1]}, {table.columns[index]}: found {cell[:60]!r}, expected a number or "
            "nothing"
        )
    return float(cell)
