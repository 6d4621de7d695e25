"""Tells where the time of a training step goes: stacks sampled by CPU time, and calls of functions.

    python -m benchmarks engine --only profile

Each variant trains in its own process, one after the other. Stacks are sampled with a timer of the CPU time (SIGPROF);
a sample counts for the innermost function that is in a row of the table. A second turn counts calls with cProfile,
which a load of the machine does not change.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from cProfile import Profile
from functools import partial
from multiprocessing.connection import Connection
from pathlib import PurePath
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from typing_extensions import override

from benchmarks.engine.interleaving import WARM_UP, Body, Gate, train_alone
from benchmarks.engine.mlp import BATCH_SIZES
from benchmarks.engine.trainings import bare, engine, plain_lightning, with_accelerate
from benchmarks.variant_process import VariantProcess

INTERVAL = 0.002
"""CPU seconds between two samples."""

ROWS = {
    "forward pass": ("benchmarks/engine/mlp.py:squared_errors",),
    "backward pass": ("torch/_tensor.py", "torch/autograd/"),
    "optimizer and schedule": ("torch/optim/", "accelerate/optimizer.py", "accelerate/scheduler.py"),
    "clipping and its norm": ("torch/nn/utils/clip_grad.py", "engine/optim/grad_norm.py"),
    "exact mean and counters": ("engine/optim/global_loss_mean.py", "engine/distributed/step_counters.py"),
    "seed of the step": ("engine/determinism/",),
    "loader": ("engine/data/", "torch/utils/data/", "accelerate/data_loader.py", "benchmarks/engine/mlp.py:"),
    "logging": ("trainer/connectors/logger_connector/", "torchmetrics/"),
    "code of callbacks": ("callbacks/",),
    "calls of callbacks": ("lightning/pytorch/trainer/call.py",),
    "loop": ("lightning/", "accelerate/", "benchmarks/"),
    "engine's module": ("engine/",),
    "other": ("",),
}
"""{row: parts of the locations, `path:function`, that belong to it}. The first that fits counts."""


class StepProfile(NamedTuple):
    """Cost of a step of a variant."""

    microseconds: dict[str, float]  # by rows of the table
    calls: int  # of functions, Python's and C's
    torch_calls: int  # of these, of torch's functions in C


def measure(steps: int, size: str = "5 ms", variants: Mapping[str, Body] | None = None) -> dict[str, StepProfile]:
    """Profile `steps` steps of each variant.

    Args:
        steps: steps of each turn.
        size: a key of `BATCH_SIZES`.
        variants: trainings; None: those of `--only share`, with steps of `size`.
    """
    found = {}
    for name, body in (variants or _variants(BATCH_SIZES[size])).items():
        with _Variant(name, body, steps) as variant:
            found[name] = variant.receive()
    return found


def _variants(batch_size: int) -> dict[str, Body]:
    bodies = {
        "bare torch loop": bare,
        "Accelerate": with_accelerate,
        "plain Lightning": plain_lightning,
        "engine, all guards": engine,
    }
    return {name: partial(body, batch_size=batch_size) for name, body in bodies.items()}


class _Variant(VariantProcess):
    """Process of a training that is profiled."""

    def __init__(self, name: str, body: Body, steps: int) -> None:
        super().__init__(name, _serve, body, steps)


def _serve(connection: Connection, body: Body, steps: int) -> None:
    connection.send(None)
    with TemporaryDirectory() as folder:
        train_alone(body, _ProfilingGate(steps, connection.send), folder)


class _ProfilingGate(Gate):
    """Samples stacks after the warm-up, then counts calls, and then stops the training for good."""

    def __init__(self, steps: int, report: Callable[[StepProfile], None]) -> None:
        super().__init__(always_open=True)
        self._steps, self._report, self._done = steps, report, 0
        self._samples, self._profile = Counter[str](), Profile()

    @override
    def step(self) -> None:
        self._done += 1
        if self._done == WARM_UP:
            # Calls are counted apart: cProfile slows Python and not torch, which would distort the shares of stacks.
            signal.signal(signal.SIGPROF, lambda _, frame: self._samples.update([row_of(frame)]))
            signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        elif self._done == WARM_UP + self._steps:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._profile.enable()
        elif self._done == WARM_UP + 2 * self._steps:
            self._profile.disable()
            self._report(self._result())
            # The parent ends the process: a return would start Lightning's work at the end of a training.
            threading.Event().wait()

    def _result(self) -> StepProfile:
        counted = [(str(entry.code), entry.callcount) for entry in self._profile.getstats()]
        return StepProfile(
            {row: 1e6 * INTERVAL * self._samples[row] / self._steps for row in ROWS},
            round(sum(count for _, count in counted) / self._steps),
            round(sum(count for name, count in counted if name.startswith("<") and "torch" in name) / self._steps),
        )


def row_of(frame: FrameType | None) -> str:
    """Return the row of the innermost frame of a stack that has one besides `other`."""
    while frame is not None:
        # The first row that fits counts, and "" fits any place, so every frame has a row.
        location = f"{PurePath(frame.f_code.co_filename).as_posix()}:{frame.f_code.co_name}"
        row = next(row for row, parts in ROWS.items() if any(part in location for part in parts))
        if row != "other":
            return row
        frame = frame.f_back
    return "other"


def result(profiles: Mapping[str, StepProfile], size: str = "5 ms") -> dict[str, Any]:
    """Return the profiles for JSON."""
    return {
        "name": "profile",
        "size": size,
        "sides": [{"name": name, **found._asdict()} for name, found in profiles.items()],
    }


def table(profiles: Mapping[str, StepProfile], size: str = "5 ms") -> Table:
    """Return a table with a column per variant."""
    sheet = Table(box=box.SIMPLE_HEAD, title=f"A step of {size}, CPU us", title_justify="left", title_style="bold")
    sheet.add_column("")
    for name in profiles:
        sheet.add_column(name, justify="right", no_wrap=True)
    found = list(profiles.values())
    for row in ROWS:
        sheet.add_row(row, *(f"{one.microseconds[row]:,.0f}" for one in found))
    sheet.add_row("all", *(f"{sum(one.microseconds.values()):,.0f}" for one in found), end_section=True)
    sheet.add_row("calls of functions", *(f"{one.calls:,}" for one in found))
    sheet.add_row("of these, torch's in C", *(f"{one.torch_calls:,}" for one in found))
    return sheet
