"""Runs a part of the device benchmark in a process, and returns its results.

A part is a module of this package with `measure(setting)`, a generator that yields checks and then tables. If a check
fails, the part is not continued, so a wrong computation is never timed. Each part has its own process: a broken CUDA
context or exhausted memory ends with it.
"""

import importlib
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import psutil

from benchmarks.variant_process import VariantProcess

NEEDS_CUDA = "needs CUDA"


class Setting(NamedTuple):
    """Settings for all parts."""

    device: str  # cuda or cpu
    tiny: bool  # small sizes that only test that a part runs
    repeats: int
    compiled: bool = True  # also measure torch.compile
    peak_tflops: float | None = None  # dense peak in 16 bits; None: as known to callbacks/performance/peak_flops.py

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device == "cuda"


class Check(NamedTuple):
    """Comparison of a computation with float64."""

    name: str
    error: float  # relative error, see reference.py; NaN if a value was not finite
    bound: float

    @property
    def passed(self) -> bool:
        """Whether the error is within its bound."""
        return self.error <= self.bound  # False for NaN


class Row(NamedTuple):
    """Row of a table."""

    name: str
    cells: tuple[list[float] | float | str, ...]  # per column: a number for each turn, a single number, or an error


class ResultTable(NamedTuple):
    """Table of measurements."""

    title: str
    headings: tuple[str, ...]
    rows: list[Row]
    failures: dict[str, str] = {}  # names of rows that could not be measured, and their errors
    note: str = ""  # printed below the table


class Failure(NamedTuple):
    """Reason why a part has no more results."""

    error: str


PartResult = list[Check] | ResultTable | Failure


def part_results(part: str, setting: Setting, seconds: float) -> Iterator[PartResult]:
    """Yield the results of a part as they arrive; a Failure last if the part did not end within `seconds`."""
    end, process = time.monotonic() + seconds, VariantProcess(part, _serve, part, setting)
    try:
        while True:
            if not process.connection.poll(max(0.0, end - time.monotonic())):
                yield Failure(f"stopped: not done in the {seconds:.0f} s that were left (--minutes)")
                return
            found = process.receive()
            if found is None:
                return
            yield found
            if isinstance(found, Failure):
                return
    except RuntimeError as error:
        yield Failure(str(error))
    finally:
        _end(process)


def _serve(connection: Connection, part: str, setting: Setting) -> None:
    if not setting.cuda:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the processes that a part starts have it, too
    try:
        module: Any = importlib.import_module(f"benchmarks.device.{part}")
        for found in module.measure(setting):
            connection.send(found)
            # A wrong computation may be fast, so its time is not measured.
            if isinstance(found, list) and not all(check.passed for check in found):
                break
        connection.send(None)
    except Exception:  # noqa: BLE001 whatever it is, the other parts go on, and it is reported
        connection.send(Failure(traceback.format_exc()))


def _end(process: VariantProcess) -> None:
    with suppress(psutil.NoSuchProcess):
        # Children first, loader workers and trainings: without their parent they could not be found.
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.process.kill()
    process.process.join()
    process.connection.close()
