"""Measures the parts of a step's time: waiting for data, forward, backward, and the rest with the optimizer."""

import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from rich import box
from rich.table import Table
from typing_extensions import override

from benchmarks.engine.interleaving import Gate
from benchmarks.environment import spread
from benchmarks.variant_process import VariantProcess
from benchmarks.vision_language.models import SMALL, Layout, Sizes
from benchmarks.vision_language.trainings import ours

PARTS = ("data", "forward", "backward", "optimizer")
_STEPS, _WARM_UP = 6, 3  # of a turn, and before the first turn


class StepParts(Callback):
    """Records the seconds of each part of every step; on an accelerator it synchronizes between the parts."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._last = time.perf_counter()

    @override
    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        self.steps.append({"data": self._since(trainer)})

    @override
    def on_before_backward(self, trainer: Trainer, *args: Any) -> None:
        self.steps[-1]["forward"] = self._since(trainer)

    @override
    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.steps[-1]["backward"] = self._since(trainer)

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        self.steps[-1]["optimizer"] = self._since(trainer)

    def _since(self, trainer: Trainer) -> float:
        # Kernels run asynchronously: without waiting, their time would count for a later part.
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.synchronize(trainer.strategy.root_device)
        before, self._last = self._last, time.perf_counter()
        return self._last - before


LAYOUTS = {"one chat per row": Layout(), "packed": Layout(packed=True)}


def measure(
    repeats: int, sizes: Sizes = SMALL, steps: int = _STEPS, layouts: dict[str, Layout] = LAYOUTS
) -> dict[str, Any]:
    """Measure the share of each part for each layout, in each turn."""
    rows = []
    for name, layout in layouts.items():
        # One variant after the other: shares within a step are compared, not the speed of the variants.
        variant = VariantProcess(name, _measure, sizes, layout, repeats, steps, daemon=True)
        try:
            rows.append({"name": name, "shares": variant.receive()})
        finally:
            variant.process.kill()
            variant.process.join()
    return {"name": "step_parts", "sides": rows}


def _measure(connection: Connection, sizes: Sizes, layout: Layout, repeats: int, steps: int) -> None:
    torch.set_num_threads(1)
    parts = StepParts()

    class Done(Exception):
        pass

    class Counted(Gate):
        def step(self) -> None:
            if len(parts.steps) == _WARM_UP + repeats * steps:
                # A Trainer without a maximum of steps ends by an exception only.
                raise Done

    with suppress(Done):
        ours(Counted(), sizes=sizes, layout=layout, callbacks=[parts])
    found = []
    for turn in range(repeats):
        chosen = parts.steps[_WARM_UP + turn * steps :][:steps]
        total = sum(sum(step.values()) for step in chosen)
        found.append({part: sum(step[part] for step in chosen) / total for part in PARTS})
    connection.send(found)


def table(found: dict[str, Any]) -> Table:
    """Return a table with a row per layout."""
    sheet = Table(box=box.SIMPLE_HEAD, title="Where a step's time goes, %", title_justify="left", title_style="bold")
    sheet.add_column("")
    for part in PARTS:
        sheet.add_column(part, justify="right", no_wrap=True)
    for variant in found["sides"]:
        sheet.add_row(variant["name"], *(spread([100 * turn[part] for turn in variant["shares"]]) for part in PARTS))
    return sheet
