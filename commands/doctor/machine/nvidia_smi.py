"""Parses driver, GPUs, peer access and processes on GPUs from the output of nvidia-smi."""

import csv
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Runner = Callable[..., str]
_FIELDS = (
    "index", "uuid", "name", "memory.total", "memory.used", "utilization.gpu", "compute_mode",
    "ecc.errors.uncorrected.volatile.total", "mig.mode.current",
)  # fmt: skip
_PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")


@dataclass(frozen=True)
class Gpu:
    """One GPU of the machine."""

    index: int
    uuid: str
    name: str
    total: int  # MiB
    used: int  # MiB
    busy: int  # utilization in the last second, in percent
    mode: str  # "Default", "Exclusive_Process", "Prohibited"
    ecc_errors: int  # uncorrectable errors since the driver was loaded
    mig: bool


class GpuProcess(NamedTuple):
    """A process on a GPU."""

    uuid: str  # of the GPU
    pid: int
    name: str
    used: int  # MiB


class MigInstance(NamedTuple):
    """An instance of a partitioned GPU (Multi-Instance GPU)."""

    uuid: str
    profile: str  # "1g.5gb": compute slices and memory
    gpu: int  # index of the GPU


class Driver(NamedTuple):
    """Output of nvidia-smi; empty without NVIDIA's driver."""

    version: str = ""
    cuda: str = ""
    """Newest CUDA version that the driver supports."""
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    without_peer_access: tuple[tuple[int, int], ...] = ()
    """Pairs of GPUs that cannot read each other's memory."""
    mig_instances: tuple[MigInstance, ...] = ()
    error: str = ""
    """Error of nvidia-smi; the other fields are then empty."""


class NvidiaSmiError(Exception):
    """nvidia-smi failed; the message is its output."""


def nvidia_smi(*arguments: str) -> str:
    """Return the output of the program.

    Raises:
        FileNotFoundError: it is not installed.
        NvidiaSmiError: it failed, or did not end within 20 s, as after a GPU has fallen off the bus.
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        raise FileNotFoundError("nvidia-smi")
    try:
        result = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        raise NvidiaSmiError("nvidia-smi does not answer within 20 s") from None
    if result.returncode:
        lines = (result.stdout + result.stderr).strip().splitlines() or [f"exit code {result.returncode}"]
        raise NvidiaSmiError(" ".join(lines)[:300])
    return result.stdout


def query_driver(run: Runner = nvidia_smi) -> Driver:
    """Return driver, GPUs and processes; empty on a machine without NVIDIA's driver."""
    try:
        head = run()
        rows = _rows(run(f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"))
        processes = _rows(run(f"--query-compute-apps={','.join(_PROCESS_FIELDS)}", "--format=csv,noheader,nounits"))
    except FileNotFoundError:
        return Driver()
    except NvidiaSmiError as error:
        return Driver(error=str(error))
    try:
        without_peer_access = _without_peer_access(run("topo", "-p2p", "r")) if len(rows) > 1 else ()
    except NvidiaSmiError:  # an old driver does not support the query
        without_peer_access = ()
    try:
        instances = _mig_instances(run("-L")) if any(gpu.mig for gpu in map(_gpu, rows)) else ()
    except NvidiaSmiError:
        instances = ()
    return Driver(
        _number_after("Driver Version", head),
        _number_after("CUDA Version", head),
        tuple(map(_gpu, rows)),
        tuple(GpuProcess(r[0], _parse_number(r[1]), r[2], _parse_number(r[3])) for r in processes),
        without_peer_access,
        instances,
    )


def _gpu(row: list[str]) -> Gpu:
    index, uuid, name, total, used, busy, mode, ecc_errors, mig = row
    sizes = _parse_number(total), _parse_number(used), _parse_number(busy)
    return Gpu(
        int(index), uuid, name, *sizes, mode, _parse_number(ecc_errors), mig == "Enabled"
    )  # fmt: skip


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]


def _mig_instances(listed: str) -> tuple[MigInstance, ...]:
    """Parse `nvidia-smi -L`, where the instances of a GPU are indented below it."""
    instances, gpu = [], 0
    for line in listed.splitlines():
        if card := re.match(r"GPU (\d+):", line):
            gpu = int(card.group(1))
        elif instance := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line):
            instances.append(MigInstance(instance.group(2), instance.group(1), gpu))
    return tuple(instances)


def _number_after(label: str, text: str) -> str:
    match = re.search(rf"{label}:\s*([\d.]+)", text)
    return match.group(1) if match else ""


def _parse_number(text: str) -> int:
    """Return the number; 0 for `[N/A]` and `[Not Supported]`."""
    return int(text) if text.isdigit() else 0


def _without_peer_access(matrix: str) -> tuple[tuple[int, int], ...]:
    """Parse the matrix of `nvidia-smi topo -p2p r`, whose cells are OK or a reason."""
    pairs = []
    for line in matrix.splitlines():
        cells = line.split()
        if len(cells) > 1 and re.fullmatch(r"GPU\d+", cells[0]) and not re.fullmatch(r"GPU\d+", cells[1]):
            row = int(cells[0].removeprefix("GPU"))
            later = list(enumerate(cells[1:]))[row + 1 :]
            pairs += [(row, column) for column, cell in later if cell != "OK"]
    return tuple(pairs)
