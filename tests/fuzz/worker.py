"""Reads inputs in a child process, which a hang or a crash of a native library ends without further effects."""

import logging
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.outcome import Outcome, OutcomeKind, classify
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown
from tests.fuzz.readers import reader

_ADDRESS_SPACE = 4 << 30
"""Bytes of address space that a read may add; beyond them an allocation fails, which protects the machine."""

_SHOWN = 300
"""Characters of rows in a detail."""


READY = "ready"
"""What a worker sends when it waits for inputs."""


class Read(NamedTuple):
    """First report on an input: how the read ended."""

    kind: OutcomeKind | None  # None: accepted; a comparison with the reference follows
    detail: str
    seconds: float
    megabytes: float


class Compared(NamedTuple):
    """Second report on an input that was accepted."""

    kind: OutcomeKind
    detail: str


def work(connection: Connection, name: str, folder: Path) -> None:
    """Read each input that arrives, in a folder of its own below `folder`; ends when the connection is closed."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    logging.disable(logging.CRITICAL)
    try:
        import_module("engine.distributed.errors")  # by `classify`
        chosen = reader(name)
        for seed in chosen.seeds():  # imports what a read needs, so that no input is charged for it
            _handle(chosen, seed, lambda report: None, folder)
        _limit_memory()
    except Exception:  # noqa: BLE001  (any failure is of the fuzzer itself, and is raised where it is seen)
        connection.send(traceback.format_exc())
        return
    connection.send(READY)
    while True:
        try:
            found = connection.recv()
        except (EOFError, OSError):
            return
        _handle(chosen, found, connection.send, folder)


def examine(chosen: Reader, mutated: Input) -> Outcome:
    """Return the outcome of an input that is read in this process, where a crash ends all."""
    reports: list[Read | Compared] = []
    _handle(chosen, mutated, reports.append)
    first, last = reports[0], reports[-1]
    assert isinstance(first, Read), "an accepted input is compared"
    assert last.kind is not None, "an accepted input is compared"
    return Outcome(last.kind, last.detail, first.seconds, first.megabytes)


def _handle(chosen: Reader, mutated: Input, send: Any, parent: Path | None = None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=parent))
    try:
        chosen.surround(folder)
        path = folder / mutated.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutated.data)
        report, rows = _read(chosen, path)
        send(report)
        if report.kind is None:
            send(_compare(chosen, path, rows))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(chosen: Reader, path: Path) -> tuple[Read, Any]:
    rows, kind, detail = None, None, ""
    before, begun = _reset_peak(), time.process_time()
    try:
        rows = chosen.read(path)
    except BaseException as error:  # noqa: BLE001  (a panic of polars is no Exception)
        seconds, megabytes = time.process_time() - begun, _peak() - before
        kind, detail = classify(error, chosen, path)
        if kind is OutcomeKind.TRACEBACK:
            detail = f"{detail[:_SHOWN]} ({_raised_at(error)})"
    else:
        seconds, megabytes = time.process_time() - begun, _peak() - before
    if seconds > chosen.seconds:
        kind, detail = OutcomeKind.TIME, f"{seconds:.1f} CPU s; {detail}"
    elif megabytes > chosen.megabytes:
        kind, detail = OutcomeKind.MEMORY, f"{megabytes:.0f} MB; {detail}"
    return Read(kind, detail, seconds, megabytes), rows


def _compare(chosen: Reader, path: Path, rows: Any) -> Compared:
    try:
        expected = chosen.reference(path)
    except Unknown as reason:
        return Compared(OutcomeKind.RIGHT, f"not compared: {reason}")
    except InvalidInput as reason:
        return Compared(OutcomeKind.SILENT, f"accepted, but {reason}; {repr(rows)[:_SHOWN]}")
    if chosen.agrees(rows, expected):
        return Compared(OutcomeKind.RIGHT, "")
    return Compared(OutcomeKind.SILENT, _difference(rows, expected))


def _difference(actual: Any, expected: Any) -> str:
    """Return the first rows that differ."""
    if isinstance(actual, list) and isinstance(expected, list):
        if len(actual) != len(expected):
            return f"found {len(actual)} rows, the reference {len(expected)}"
        at = next((at for at, (own, other) in enumerate(zip(actual, expected, strict=True)) if own != other), 0)
        if actual:
            return f"row {at}: found {repr(actual[at])[:_SHOWN]}, the reference {repr(expected[at])[:_SHOWN]}"
    return f"found {repr(actual)[:_SHOWN]}, the reference {repr(expected)[:_SHOWN]}"


def _raised_at(error: BaseException) -> str:
    """Return the innermost line in the project's own files."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and "/tests/" not in frame.filename]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _limit_memory() -> None:
    if sys.platform != "linux":
        return
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE, used + _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reset_peak() -> float:
    """Reset the peak of the resident memory, where the system can; return the resident memory in MB."""
    if sys.platform != "linux":
        return 0.0
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM") if sys.platform == "linux" else 0.0


def _status(key: str) -> float:
    match = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else 0.0
