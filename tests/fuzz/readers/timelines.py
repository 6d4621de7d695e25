"""Timelines as CSV. The reference is the csv module and the numbers of the cells, by their times."""

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader

_CHANNELS = ("cpu_cores", "cpu_mem_gb", "gpu_sm", "gpu_mem_gb")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


class Timelines(Reader):
    """Number of steps, and {step: {channel: available amount}}; a missing row or cell is a missing sample."""

    def seeds(self) -> Sequence[Input]:
        four = "time_ms," + ",".join(_CHANNELS) + "\n"
        four += "".join(f"{100 * step},{step % 8},{16.5 + step},{90 - step},{20.25}\n" for step in range(12))
        gaps = "gpu_sm, time_ms\n50,0\n,200\n51.5,400\n52,1000\n"
        return [Input("machine.csv", four.encode()), Input("gaps.csv", gaps.encode())]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(b",")(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.temporal.timelines.recorded.recording_reader import read

        [found] = read(path)
        amounts = {
            step: [float(share * size) for share, size in zip(found.shares[step], found.capacities, strict=True)]
            for step in np.flatnonzero(~np.isnan(found.shares).all(axis=1)).tolist()
        }
        columns = {step: zip(_CHANNELS, row, strict=True) for step, row in amounts.items()}
        return len(found.shares), {step: {k: v for k, v in row if not math.isnan(v)} for step, row in columns.items()}

    def reference(self, path: Path) -> Any:
        try:
            text = path.read_bytes().decode("utf-8-sig")
            lines = [
                cells
                for cells in csv.reader(io.StringIO(text, newline=""), strict=True)
                if any(map(str.strip, cells)) or len(cells) > 1
            ]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput(str(error)) from error
        header = [cell.strip() for cell in lines[0]] if lines else []
        columns = {"time_ms", *_CHANNELS}
        if "time_ms" not in header or len(header) < 2 or len(set(header)) < len(header) or not set(header) <= columns:
            raise InvalidInput(f"the header is {header}"[:200])
        rows = [
            dict(zip(header, map(_number, cells), strict=True))
            for cells in lines[1:]
            if any(map(str.strip, cells)) and _fits(cells, header)
        ]
        times = [row.pop("time_ms") for row in rows]
        if len(rows) < 2 or None in times:
            raise InvalidInput("it has fewer than two times")
        step = min(later - earlier for earlier, later in zip(times, times[1:], strict=False))
        if step <= 0 or any((time - times[0]) % step for time in times):
            raise InvalidInput("its times are not in steps")
        length = round((times[-1] - times[0]) / step) + 1
        if length > 10_000_000:
            raise InvalidInput(f"it has {length} steps")
        found = {
            round((time - times[0]) / step): {name: value for name, value in row.items() if value is not None}
            for time, row in zip(times, rows, strict=True)
        }
        if any(value < 0 for row in found.values() for value in row.values()):
            raise InvalidInput("a value is below 0")
        return length, {step: row for step, row in found.items() if row}

    def agrees(self, actual: Any, expected: Any) -> bool:
        (steps, rows), (expected_steps, expected_rows) = actual, expected
        return (steps, rows.keys()) == (expected_steps, expected_rows.keys()) and all(
            row.keys() == other.keys() and all(math.isclose(row[key], other[key], rel_tol=1e-9) for key in row)
            for row, other in ((row, expected_rows[step]) for step, row in rows.items())
        )


READERS = {"timelines": Timelines}


def _fits(cells: list[str], header: list[str]) -> bool:
    if len(cells) != len(header):
        raise InvalidInput(f"a row has {len(cells)} cells")
    return True


def _number(cell: str) -> float | None:
    if cell.strip().lower() in ("", "nan"):  # NumPy writes nan
        return None
    if not _NUMBER.fullmatch(cell) or not math.isfinite(float(cell)):
        raise InvalidInput(f"it has the cell {cell[:40]!r}")
    return float(cell)
