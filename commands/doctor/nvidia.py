"""What nvidia-smi says about driver, GPUs, their links, and the processes on them."""

import csv
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import NamedTuple

Ask = Callable[..., str]
_FIELDS = (
    "index", "uuid", "name", "memory.total", "memory.used", "utilization.gpu", "compute_mode",
    "ecc.errors.uncorrected.volatile.total", "mig.mode.current",
)  # fmt: skip
_OF_PROCESSES = ("gpu_uuid", "pid", "process_name", "used_memory")


class Gpu(NamedTuple):
    """One GPU of the machine."""

    index: int
    uuid: str
    name: str
    total: int  # MiB
    used: int  # MiB
    busy: int  # % of the last second in which it computed
    mode: str  # "Default", "Exclusive_Process", "Prohibited"
    broken: int  # errors of its memory that could not be corrected, since the driver was loaded
    mig: bool


class Occupant(NamedTuple):
    """A process on a GPU."""

    uuid: str  # of the GPU
    pid: int
    name: str
    used: int  # MiB


class Part(NamedTuple):
    """A part of a GPU (Multi-Instance GPU)."""

    uuid: str
    profile: str  # "1g.5gb": how much of it computes, and its memory
    gpu: int  # index of the GPU


class Driver(NamedTuple):
    """What there is; `complaint` is nvidia-smi's, where it can say nothing else."""

    version: str = ""
    cuda: str = ""
    """The newest CUDA that it runs."""
    gpus: tuple[Gpu, ...] = ()
    occupants: tuple[Occupant, ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    """Pairs of GPUs that cannot read each other's memory."""
    parts: tuple[Part, ...] = ()
    complaint: str = ""


class Unanswered(Exception):
    """nvidia-smi is there but says no; its words."""


def nvidia_smi(*arguments: str) -> str:
    """The output of the program.

    Raises:
        FileNotFoundError: it is not there.
        Unanswered: it ended with an error, or not within 20 s (a GPU that has fallen off the bus).
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        raise FileNotFoundError("nvidia-smi")
    try:
        answer = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        raise Unanswered("nvidia-smi does not answer within 20 s") from None
    if answer.returncode:
        words = (answer.stdout + answer.stderr).strip().splitlines() or [f"exit code {answer.returncode}"]
        raise Unanswered(" ".join(words)[:300])
    return answer.stdout


def driver(ask: Ask = nvidia_smi) -> Driver:
    """All that is known; an empty one on a machine without NVIDIA's driver."""
    try:
        head = ask()
        rows = _rows(ask(f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"))
        there = _rows(ask(f"--query-compute-apps={','.join(_OF_PROCESSES)}", "--format=csv,noheader,nounits"))
    except FileNotFoundError:
        return Driver()
    except Unanswered as error:
        return Driver(complaint=str(error))
    try:
        apart = _apart(ask("topo", "-p2p", "r")) if len(rows) > 1 else ()
    except Unanswered:  # an old driver does not know the question
        apart = ()
    try:
        parts = _parts(ask("-L")) if any(gpu.mig for gpu in map(_gpu, rows)) else ()
    except Unanswered:
        parts = ()
    return Driver(
        _after("Driver Version", head),
        _after("CUDA Version", head),
        tuple(map(_gpu, rows)),
        tuple(Occupant(r[0], _number(r[1]), r[2], _number(r[3])) for r in there),
        apart,
        parts,
    )


def _gpu(row: list[str]) -> Gpu:
    index, uuid, name, total, used, busy, mode, broken, mig = row
    return Gpu(int(index), uuid, name, *map(_number, (total, used, busy)), mode, _number(broken), mig == "Enabled")


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]


def _parts(listed: str) -> tuple[Part, ...]:
    """From `nvidia-smi -L`: the parts of a GPU are indented below it."""
    parts, gpu = [], 0
    for line in listed.splitlines():
        if of := re.match(r"GPU (\d+):", line):
            gpu = int(of.group(1))
        elif part := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line):
            parts.append(Part(part.group(2), part.group(1), gpu))
    return tuple(parts)


def _after(label: str, text: str) -> str:
    found = re.search(rf"{label}:\s*([\d.]+)", text)
    return found.group(1) if found else ""


def _number(text: str) -> int:
    """`[N/A]` and `[Not Supported]` count as 0."""
    return int(text) if text.isdigit() else 0


def _apart(matrix: str) -> tuple[tuple[int, int], ...]:
    """Pairs from the matrix of `nvidia-smi topo -p2p r`: OK, or in several words why not."""
    pairs = []
    for line in matrix.splitlines():
        cells = line.split()
        if len(cells) > 1 and re.fullmatch(r"GPU\d+", cells[0]) and not re.fullmatch(r"GPU\d+", cells[1]):
            row = int(cells[0].removeprefix("GPU"))
            others = list(enumerate(cells[1:]))[row + 1 :]
            pairs += [(row, column) for column, cell in others if cell != "OK"]
    return tuple(pairs)
