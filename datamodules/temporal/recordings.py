"""Recorded timelines: files on disk -> available shares of each channel's capacity."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.channels import CHANNELS, KEYS, Channel

_TIME = "time_ms"
_POD_MEMORY = 64.0  # GB


class Recording(NamedTuple):
    """One machine or pod over time."""

    name: str
    shares: NDArray[np.float64]  # [T, 4] available share of the capacity, NaN where nothing was measured
    capacities: tuple[float, ...]  # [4] in the channels' units
    step_ms: int


def read_csv(path: Path, capacities: Mapping[str, float] | None = None) -> Recording:
    """A timeline of available resources: a column `time_ms`, and one for each channel that was measured.

    Rows that are not there and empty cells are missing samples.

    Args:
        path: the file; its first line names the columns.
        capacities: {channel: capacity in its unit}; for a channel without one, the smallest machine as they are sold
            (`channels.CHANNELS`) that has as much as was ever available.

    Raises:
        ValueError: with file and line, for a column that is none, a cell that is no number, times that do not go up in
            whole steps, and values below 0 or above the capacity.
    """
    check_capacities(capacities or {})
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        lines = [(number, cells) for number, cells in enumerate(csv.reader(file), 1) if cells]
    if not lines:
        raise ValueError(f"{path}: found nothing, expected a line with {_TIME} and the names of channels")
    columns = _columns(path, [cell.strip() for cell in lines[0][1]])
    rows = [(number, _numbers(f"{path}, line {number}", columns, cells)) for number, cells in lines[1:]]
    if len(rows) < 2:
        raise ValueError(f"{path}: found {len(rows)} lines of values, expected 2 or more")
    steps, step_ms = _steps(path, [(number, row[_TIME]) for number, row in rows])
    values = np.full((steps[-1] + 1, len(KEYS)), np.nan)
    for step, (_, row) in zip(steps, rows, strict=True):
        values[step] = [row.get(key, math.nan) for key in KEYS]
    found = tuple(
        float((capacities or {}).get(channel.key) or _capacity(channel, values[:, k]))
        for k, channel in enumerate(CHANNELS)
    )
    for step, (number, _) in zip(steps, rows, strict=True):
        for k, key in enumerate(KEYS):
            if not math.isnan(values[step, k]) and not 0 <= values[step, k] <= found[k]:
                raise ValueError(f"{path}, line {number}, {key}: found {values[step, k]:g}, expected 0 to {found[k]:g}")
    return Recording(Path(path).stem, values / np.array(found), found, step_ms)


def read_npz(path: Path) -> list[Recording]:
    """Pods of the GenTD26 trace: what each *used*, joined into one file.

    It holds `values` [pods, T, channels], `channels` (of gpu_sm in %, gpu_mem_gb in GiB, mem_util in % of the pod's
    memory), `container` [pods] and `dt_s`, NaN where nothing was measured. A pod's GPU has the smallest memory that is
    sold and holds the most that the pod ever used; how much CPU memory a pod has is not known, and said to be 64 GB.

    Raises:
        ValueError: the file lacks one of these, or their shapes disagree.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            values, names = file["values"], [str(name) for name in file["channels"]]
            pods, seconds = [str(name) for name in file["container"]], float(file["dt_s"])
    except (KeyError, BadZipFile, EOFError) as error:
        raise ValueError(f"{path}: found no timelines ({error}), expected values, channels, container, dt_s") from error
    if values.ndim != 3 or values.shape[::2] != (len(pods), len(names)):
        raise ValueError(f"{path}: found values {values.shape} of {len(pods)} pods and {len(names)} channels")
    used = {name: values[:, :, k].astype(np.float64) for k, name in enumerate(names)}
    unknown = set(used) - {"gpu_sm", "gpu_mem_gb", "mem_util"}
    if unknown:
        raise ValueError(f"{path}: found the channels {', '.join(names)}, expected gpu_sm, gpu_mem_gb, mem_util")
    nothing = np.full(values.shape[:2], np.nan)
    recordings = []
    for pod, name in enumerate(pods):
        gpu_memory = used.get("gpu_mem_gb", nothing)[pod]
        capacities = (float(CHANNELS[0].capacities[0]), _POD_MEMORY, 100.0, _capacity(CHANNELS[3], gpu_memory))
        shares = [nothing[pod], used.get("mem_util", nothing)[pod] / 100, used.get("gpu_sm", nothing)[pod] / 100]
        shares = 1 - np.stack([*shares, gpu_memory / capacities[3]], 1)
        recordings.append(Recording(name, shares.clip(0, 1), capacities, round(seconds * 1000)))
    return recordings


def read(path: Path, capacities: Mapping[str, float] | None = None) -> list[Recording]:
    """The timelines of an .npz file, of a .csv file, or of all .csv files in a folder, in the order of their names.

    Raises:
        ValueError: a file cannot be read as a timeline, or there is none.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.csv"))
        if not files:
            raise ValueError(f"{path}: found no .csv file, expected one for each timeline")
        return [read_csv(file, capacities) for file in files]
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".csv":
        return [read_csv(path, capacities)]
    raise ValueError(f"{path}: expected a .csv file, an .npz file or a folder of .csv files")


def check_capacities(capacities: Mapping[str, float]) -> None:
    """Raises ValueError for a channel that is none, or a capacity that no machine has."""
    unknown = set(capacities) - set(KEYS)
    if unknown:
        raise ValueError(f"capacities: found {', '.join(sorted(unknown))}, expected some of {', '.join(KEYS)}")
    for key, capacity in capacities.items():
        number = isinstance(capacity, (int, float)) and not isinstance(capacity, bool)
        if not number or not 0 < capacity < math.inf:
            raise ValueError(f"capacities: {key} is {capacity!r}, expected a number above 0")


def _columns(path: Path, names: Sequence[str]) -> list[str]:
    strange = [name for name in names if name not in (_TIME, *KEYS)]
    if strange or _TIME not in names or len(set(names)) < len(names) or len(names) < 2:
        raise ValueError(
            f"{path}, line 1: found the columns {', '.join(names)}, expected {_TIME} and some of {', '.join(KEYS)}, "
            "each once"
        )
    return list(names)


def _numbers(where: str, columns: list[str], cells: list[str]) -> dict[str, float]:
    if len(cells) != len(columns):
        raise ValueError(f"{where}: found {len(cells)} cells, expected {len(columns)}")
    row = {}
    for name, cell in zip(columns, cells, strict=True):
        try:
            row[name] = float(cell) if cell.strip() else math.nan
        except ValueError:
            row[name] = math.inf
        if math.isinf(row[name]):
            raise ValueError(f"{where}, {name}: found {cell!r}, expected a number or nothing")
    if not math.isfinite(row[_TIME]):
        raise ValueError(f"{where}, {_TIME}: found {row[_TIME]}, expected a number of milliseconds")
    return row


def _steps(path: Path, times: list[tuple[int, float]]) -> tuple[list[int], int]:
    """The step of each row, and milliseconds of a step: the smallest distance of two rows."""
    distances = [later - earlier for (_, earlier), (_, later) in zip(times, times[1:], strict=False)]
    for (number, _), distance in zip(times[1:], distances, strict=True):
        if distance <= 0:
            raise ValueError(
                f"{path}, line {number}, {_TIME}: found a step of {distance:g} ms, expected times to go up"
            )
    step = min(distances)
    if step != round(step):
        raise ValueError(f"{path}, {_TIME}: found a step of {step:g} ms, expected whole milliseconds")
    steps = [round((time - times[0][1]) / step) for _, time in times]
    for (number, time), count in zip(times, steps, strict=True):
        if time - times[0][1] != count * step:
            raise ValueError(f"{path}, line {number}, {_TIME}: found {time:g}, expected whole steps of {step:g} ms")
    return steps, round(step)


def _capacity(channel: Channel, values: NDArray[np.float64]) -> float:
    """The smallest that is sold and holds all values; of more than that, the most there was."""
    most = float(np.nanmax(values)) if not np.isnan(values).all() else 0.0
    return float(next((capacity for capacity in channel.capacities if capacity >= most), most))
