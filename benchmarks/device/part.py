"""What a part of the device benchmark says, and the process that it runs in.

A part is a module of this package with ``figures(setting)``, a generator: of checks first, then of sheets. When a check
fails nothing more is asked of the part, so that no figure of a wrong computation is ever taken. Each part has a process
of its own: what breaks a CUDA context, or needs all memory, ends with it.
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

from benchmarks.side import SideProcess

NEEDS_CUDA = "needs CUDA"


class Setting(NamedTuple):
    """What all parts are asked for."""

    device: str  # cuda or cpu
    tiny: bool  # sizes that show that a part runs, and mean nothing
    repeats: int
    compiled: bool = True  # also with torch.compile
    peak_tflops: float | None = None  # of the device in 16 bits, dense; None: as callbacks/peak_flops.py knows it

    @property
    def cuda(self) -> bool:
        return self.device == "cuda"


class Check(NamedTuple):
    """A computation beside the same in float64."""

    name: str
    error: float  # relative, see reference.py; NaN where something was not finite
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound  # never for NaN


class Row(NamedTuple):
    """A line of a sheet."""

    name: str
    cells: tuple[list[float] | float | str, ...]  # one a heading: of each turn, a single figure, or why there is none


class Sheet(NamedTuple):
    """A table of figures."""

    title: str
    headings: tuple[str, ...]
    rows: list[Row]
    failures: dict[str, str] = {}  # rows that could not be measured, and their errors
    note: str = ""  # to stand below it


class Failure(NamedTuple):
    """Why a part has no more figures."""

    error: str


Said = list[Check] | Sheet | Failure


def said(part: str, setting: Setting, seconds: float) -> Iterator[Said]:
    """What the part says, as it says it; a Failure last when it did not come to its end within ``seconds``."""
    end, process = time.monotonic() + seconds, SideProcess(part, _serve, part, setting)
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
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # also for the processes that a part starts
    try:
        module: Any = importlib.import_module(f"benchmarks.device.{part}")
        for found in module.figures(setting):
            connection.send(found)
            if isinstance(found, list) and not all(check.passed for check in found):
                break
        connection.send(None)
    except Exception:  # noqa: BLE001 whatever it is, the other parts go on, and it is said
        connection.send(Failure(traceback.format_exc()))


def _end(process: SideProcess) -> None:
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.process.kill()
    process.process.join()
    process.connection.close()
