"""Reads recorded timelines, as available shares of each channel's capacity."""

import logging
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.timelines.channels import CHANNELS
from datamodules.temporal.timelines.recorded.csv_file import read_csv
from datamodules.temporal.timelines.recorded.recording import Recording, covering_capacity
from engine.io.json_records import describe_names

_POD_MEMORY = 64.0  # GB
_NPZ_CHANNELS = {"gpu_sm", "gpu_mem_gb", "mem_util"}

_LARGEST = 2**32
"""Largest size of the unpacked arrays of an .npz file, in bytes."""

_CORRUPT = (
    KeyError, ValueError, TypeError, AttributeError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile,
    zlib.error, struct.error,
)  # fmt: skip
"""What NumPy and zipfile raise for a corrupt archive."""

log = logging.getLogger("lockstep")


class _Pods(NamedTuple):
    """Content of an .npz file."""

    values: NDArray[np.float64]  # [pods, T, channels]
    channels: list[str]
    pods: list[str]
    step_ms: int


def read_npz(path: Path) -> list[Recording]:
    """Read the pods of the GenTD26 trace, joined into one file with the resources that each pod *used*.

    The file has `values` [pods, T, channels], `channels` (of gpu_sm in %, gpu_mem_gb in GiB, mem_util in % of the pod's
    memory), `container` [pods] and `dt_s`; NaN marks a missing measurement. The capacity of a GPU's memory is the
    smallest common size that covers the pod's maximum. The CPU memory of a pod is unknown and set to 64 GB.

    Raises:
        ValueError: the file is not such a file or is corrupt, an array is missing, or the shapes disagree.
        OSError: the file cannot be read.
    """
    try:
        _check_file_size(path)
        arrays = _load(path)
    except _CORRUPT as error:
        raise ValueError(f"{path}: found no timelines ({error}), expected values, channels, container, dt_s") from error
    _check_arrays(path, arrays)
    used = {name: arrays.values[:, :, column] for column, name in enumerate(arrays.channels)}
    unmeasured = np.full(arrays.values.shape[:2], np.nan)
    gpu_memory = used.get("gpu_mem_gb", unmeasured)
    memory, computing = used.get("mem_util", unmeasured) / 100, used.get("gpu_sm", unmeasured) / 100
    recordings = []
    for pod, name in enumerate(arrays.pods):
        gpu_capacity = covering_capacity(CHANNELS[3], gpu_memory[pod])
        capacities = (float(CHANNELS[0].capacities[0]), _POD_MEMORY, 100.0, gpu_capacity)
        # The trace has what a pod used; a timeline has what is available.
        shares = 1 - np.stack([unmeasured[pod], memory[pod], computing[pod], gpu_memory[pod] / gpu_capacity], 1)
        recordings.append(Recording(name, shares.clip(0, 1), capacities, arrays.step_ms))
    return recordings


def read(path: Path, capacities: Mapping[str, float] | None = None, step_ms: int | None = None) -> list[Recording]:
    """Read the timelines of an .npz file, of a .csv file, or of all .csv files in a folder, sorted by name.

    Other files of the folder are named in a warning; hidden files are ignored. For `capacities` and `step_ms` see
    `csv_file.read_csv`.

    Raises:
        ValueError: a file is not a timeline, or there is none.
        OSError: a file cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        visible = sorted(file for file in path.iterdir() if not file.name.startswith("."))
        files = [file for file in visible if file.suffix.lower() == ".csv"]
        if not files:
            raise ValueError(f"{path}: found no .csv file, expected one for each timeline")
        if others := [file.name for file in visible if file not in files]:
            log.warning("%s: %d entries are not read, as they do not end in .csv: %s", path, len(others),
                        describe_names(others))  # fmt: skip
        return [read_csv(file, capacities, step_ms) for file in files]
    if path.suffix.lower() == ".npz":
        return read_npz(path)
    if path.suffix.lower() == ".csv":
        return [read_csv(path, capacities, step_ms)]
    raise ValueError(f"{path}: expected a .csv file, an .npz file or a folder of .csv files")


def _check_file_size(path: Path) -> None:
    """Refuse an archive whose arrays do not fit the memory, by the sizes in its directory."""
    with zipfile.ZipFile(path) as archive:
        # A zip file of kilobytes can unpack to gigabytes.
        size = sum(member.file_size for member in archive.infolist())
    if size > _LARGEST:
        raise ValueError(f"arrays of {size:,} bytes, at most {_LARGEST:,} are read")


def _check_arrays(path: Path, arrays: _Pods) -> None:
    """Refuse arrays whose shapes disagree, unknown or repeated channels, and infinite values."""
    values, names, pods = arrays.values, arrays.channels, arrays.pods
    if values.ndim != 3 or values.shape[::2] != (len(pods), len(names)):
        raise ValueError(f"{path}: found values {values.shape} of {len(pods)} pods and {len(names)} channels")
    if set(names) - _NPZ_CHANNELS or len(set(names)) < len(names):
        found = describe_names(names)
        raise ValueError(f"{path}: found the channels {found}, expected gpu_sm, gpu_mem_gb, mem_util")
    if np.isinf(values).any():
        pod, step, column = (int(index) for index in np.argwhere(np.isinf(values))[0])
        found = f"{names[column]} is {values[pod, step, column]}"
        raise ValueError(f"{path}, pod {pods[pod]}, step {step}: {found}, expected a number")


def _load(path: Path) -> _Pods:
    with np.load(path, allow_pickle=False) as file:
        values, seconds = file["values"].astype(np.float64), float(file["dt_s"])
        channels, pods = ([str(name) for name in file[key]] for key in ("channels", "container"))
    if not 0.001 <= seconds < 1e9:
        raise ValueError(f"dt_s is {seconds}, expected seconds")
    return _Pods(values, channels, pods, round(seconds * 1000))
