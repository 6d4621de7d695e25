"""Measures how long a checkpoint blocks training: Lightning and Lockstep, synchronous and asynchronous, in turns.

    python -m benchmarks.engine --only checkpoint

The stall is the duration of `save_checkpoint` in the training process. `whole` is the time until the file is complete
and can be loaded. Lightning neither flushes the file to the disk nor reads it back. Its asynchronous mode does not
report completion before the run ends, so `whole` is measured by ending it. Bandwidth is the file's size over each of
the two times. `memory` is the most that the first save allocates besides the checkpoint itself: a copy, if there is
one, whose memory the engine keeps for the next save. Each mode and size has its own process. Otherwise a copy could
reuse memory that another save has freed, and would seem to need none.

The results depend on the file system of the temporary folder, which the table names. TMPDIR selects another folder.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil
import torch
from lightning.fabric.plugins import CheckpointIO, TorchCheckpointIO
from lightning.pytorch.plugins import AsyncCheckpointIO
from rich import box
from rich.table import Table

from benchmarks.environment import number, spread
from benchmarks.memory_peak import peak, reset_peak
from benchmarks.turn_order import turn_order
from benchmarks.variant_process import VariantProcess
from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.verification import verify

_TENSORS = 40  # as many as in a small transformer with its optimizer


class Stall(NamedTuple):
    """Measurements in milliseconds, one per turn."""

    way: str
    megabytes: int
    stall: list[float]
    whole: list[float]
    memory: int  # in bytes, of the first save; the memory of a copy is kept for the next save
    file_system: str


def _lightning_asynchronous() -> CheckpointIO:
    return AsyncCheckpointIO(TorchCheckpointIO())


WAYS: dict[str, Callable[[], CheckpointIO]] = {
    "Lightning": TorchCheckpointIO,
    "Lightning, asynchronous": _lightning_asynchronous,
    "engine": VerifiedCheckpointIO,
    "engine, asynchronous": lambda: VerifiedCheckpointIO(asynchronous=True),
}


def rows(megabytes: Sequence[int] = (10, 100, 500, 2000), repeats: int = 5, folder: Path | None = None) -> list[Stall]:
    """Measure in `folder` (default: a temporary folder, removed afterwards), each mode once per turn after a warm-up.

    From 1,000 MB on there are at most three turns, because a file takes seconds and varies little.

    Raises:
        OSError: the folder has no space for a checkpoint.
        RuntimeError: a checkpoint could not be saved; the reason is printed.
    """
    measured = []
    with TemporaryDirectory(dir=folder) as measured_folder:
        _require_room(Path(measured_folder), max(megabytes))
        for size in megabytes:
            turns = repeats if size < 1000 else min(repeats, 3)
            measured += _of_size(Path(measured_folder), size, turns)
    return measured


def _of_size(folder: Path, size: int, repeats: int) -> list[Stall]:
    taken: dict[str, list[tuple[float, float, int]]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        variants = {way: stack.enter_context(_Variant(way, size, folder / "measured.ckpt")) for way in WAYS}
        # The first turn warms up; its memory counts, as a copy is allocated there.
        for turn in range(repeats + 1):
            for way, variant in turn_order(variants.items(), turn):
                taken[way].append(variant.save(turn))
    where = file_system(folder)
    stalls = []
    for way, measured in taken.items():
        stall, total = ([1e3 * turn[column] for turn in measured[1:]] for column in (0, 1))
        stalls.append(Stall(way, size, stall, total, measured[0][2], where))
    return stalls


class _Variant(VariantProcess):
    """The process in which a mode saves checkpoints of one size."""

    def __init__(self, way: str, megabytes: int, path: Path) -> None:
        super().__init__(way, _serve, way, megabytes, path, daemon=True)

    def save(self, turn: int) -> tuple[float, float, int]:
        self.connection.send(turn)
        return self.receive()


def _serve(connection: Connection, way: str, megabytes: int, path: Path) -> None:
    plugin = WAYS[way]()
    _save(plugin, {"global_step": 0}, path)  # memory of the modules that saving imports is not the checkpoint's
    connection.send(None)
    while True:
        try:
            turn = connection.recv()
        except EOFError:
            return
        # New numbers in each turn, so that no file system or cache finds known blocks.
        connection.send(_save(plugin, _checkpoint(megabytes, turn), path))


def _require_room(folder: Path, megabytes: int) -> None:
    # 20 % more than the tensors: the file's structure, and room for the system.
    needed, there = 1.2e6 * megabytes, shutil.disk_usage(folder).free
    if there < needed:
        raise OSError(
            f"{folder} has {there / 1e6:,.0f} MB left, and a checkpoint of {megabytes:,} MB needs {needed / 1e6:,.0f}: "
            "make room, or let TMPDIR name a folder of another disk"
        )


def file_system(folder: Path) -> str:
    """Return the file system of a folder, such as `ext4 on /dev/vda`; `tmpfs` is memory and not a disk."""
    mounts = [one for one in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(one.mountpoint)]
    if not mounts:
        return sys.platform
    nearest = max(mounts, key=lambda one: len(one.mountpoint))
    return f"{nearest.fstype} on {nearest.device}"


def _checkpoint(megabytes: int, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    length = megabytes * 10**6 // 4 // _TENSORS
    tensors = {f"weight.{number}": torch.rand(length, generator=generator) for number in range(_TENSORS)}
    return {"state_dict": tensors, "global_step": seed}


def _save(plugin: CheckpointIO, checkpoint: dict[str, Any], path: Path) -> tuple[float, float, int]:
    """Return seconds until training continues, seconds until the file is complete, and bytes besides the checkpoint.

    The file is verified and removed.
    """
    ground = reset_peak()
    start = time.perf_counter()
    # A copy of the dict, as plugins may add keys or take tensors out.
    plugin.save_checkpoint(dict(checkpoint), path)
    stall = time.perf_counter() - start
    # Waits for the asynchronous writer; Lightning's only does so when it is torn down. `verify` reads what was written.
    if isinstance(plugin, VerifiedCheckpointIO):
        plugin.finish_writing()
    else:
        plugin.teardown()
    total = time.perf_counter() - start
    memory = max(0, peak() - ground)
    # A fast save that wrote a corrupt file would not be a result.
    verify(path)
    path.unlink()
    return stall, total, memory


def table(stalls: Sequence[Stall]) -> Table:
    """Return a table with a row per size and mode."""
    title = f"A checkpoint ({', '.join(sorted({one.file_system for one in stalls}))})"
    sheet = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for heading in ("MB", "way", "blocked, ms", "MB/s", "whole after, ms", "MB/s", "memory, MB"):
        sheet.add_column(heading, justify="left" if heading == "way" else "right", no_wrap=True)
    for one in stalls:
        still, whole = (
            number(median(1e3 * one.megabytes / milliseconds for milliseconds in column))
            for column in (one.stall, one.whole)
        )
        memory = number(one.memory / 1e6)
        sheet.add_row(str(one.megabytes), one.way, spread(one.stall), still, spread(one.whole), whole, memory)
    return sheet
