"""How long training stands still for a checkpoint: Lightning's two ways and the engine's two, in one run, in turns.

    python -m benchmarks.engine --only checkpoint

The stall is the time that `save_checkpoint` takes in the training process; `whole` is when the file is whole and can be
loaded. Lightning's own ways do neither flush the file to the disk nor read it back, and its asynchronous one says
nothing of when it is done before the run ends; its `whole` is taken by ending it.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from lightning.fabric.plugins import CheckpointIO, TorchCheckpointIO
from lightning.pytorch.plugins import AsyncCheckpointIO
from rich import box
from rich.table import Table

from benchmarks.surroundings import spread
from engine.checkpoint_file import verify
from engine.checkpoints import DurableCheckpointIO

_TENSORS = 40  # as many as a small transformer with its optimizer has


class Stall(NamedTuple):
    """Milliseconds, one figure a turn."""

    way: str
    megabytes: int
    stall: list[float]
    whole: list[float]


def _lightning_asynchronous() -> CheckpointIO:
    return AsyncCheckpointIO(TorchCheckpointIO())


WAYS: dict[str, Callable[[], CheckpointIO]] = {
    "Lightning": TorchCheckpointIO,
    "Lightning, asynchronous": _lightning_asynchronous,
    "engine": DurableCheckpointIO,
    "engine, asynchronous": lambda: DurableCheckpointIO(asynchronous=True),
}


def rows(megabytes: Sequence[int] = (10, 100, 500), repeats: int = 5, folder: Path | None = None) -> list[Stall]:
    """Measures in `folder` (default: a temporary one, removed afterwards); each way once a turn, after one to warm up.

    Raises:
        OSError: the folder does not take a checkpoint.
    """
    measured = []
    for size in megabytes:
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        plugins = {way: make() for way, make in WAYS.items()}
        with TemporaryDirectory(dir=folder) as place:
            for turn in range(repeats + 1):
                for way, plugin in plugins.items():
                    taken = _save(plugin, _checkpoint(size, turn), Path(place) / f"{way}.ckpt")
                    if turn:
                        times[way].append(taken)
        for way, taken in times.items():
            stall, whole = ([1e3 * seconds for seconds in column] for column in zip(*taken, strict=True))
            measured.append(Stall(way, size, stall, whole))
    return measured


def _checkpoint(megabytes: int, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    length = megabytes * 10**6 // 4 // _TENSORS
    tensors = {f"weight.{number}": torch.rand(length, generator=generator) for number in range(_TENSORS)}
    return {"state_dict": tensors, "global_step": seed}


def _save(plugin: CheckpointIO, checkpoint: dict[str, Any], path: Path) -> tuple[float, float]:
    start = time.perf_counter()
    plugin.save_checkpoint(checkpoint, path)
    stall = time.perf_counter() - start
    if isinstance(plugin, DurableCheckpointIO):
        plugin.finish()
    else:
        plugin.teardown()
    whole = time.perf_counter() - start
    verify(path)
    return stall, whole


def table(stalls: Sequence[Stall]) -> Table:
    """A line for each size and way."""
    sheet = Table(box=box.SIMPLE_HEAD, title="A checkpoint", title_justify="left", title_style="bold")
    for heading in ("MB", "way", "training stands still, ms", "the file is whole after, ms"):
        sheet.add_column(heading, justify="left" if heading == "way" else "right", no_wrap=True)
    for one in stalls:
        sheet.add_row(str(one.megabytes), one.way, spread(one.stall), spread(one.whole))
    return sheet
