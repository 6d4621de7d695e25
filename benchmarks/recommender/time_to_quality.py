"""Measures the time that the real training of SASRec on MovieLens-1M takes to reach a validation NDCG@10.

`train.py fit` runs in its own process group with a single thread, and its metrics.jsonl is read from outside. The run
is stopped at the first validation that reaches the target, and `train.py test` evaluates its checkpoint on the test
items. The measurements include everything since the start of the process: imports, conversion of the files, baselines,
validations and checkpoints.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil
from rich import box
from rich.console import Group
from rich.table import Table

_ROOT = Path(__file__).resolve().parents[2]
NAME, CONFIG, METRIC = "time-to-quality", _ROOT / "configs/recommender/sasrec.yaml", "val/ndcg@10"
_LOOK = 0.25  # seconds
_ENDING = 600  # seconds


class Validation(NamedTuple):
    """A validation, and the cost of the run until it was written."""

    epoch: int
    step: int
    value: float
    cpu: float  # seconds, of the run's processes
    wall: float  # seconds
    memory: int  # peak bytes of all the run's processes together, as sampled until then


class Missed(RuntimeError):
    """The run has ended without reaching the target."""


def measure(root: Path, target: float, config: Path = CONFIG, options: Sequence[str] = ()) -> dict[str, Any]:
    """Train until the target, then test; remove all files.

    Args:
        root: folder with the files of MovieLens-1M.
        target: target of the validation metric.
        config: config of `train.py fit` and `train.py test`.
        options: further options of both commands.

    Raises:
        Missed: the training has ended before it; with the best value.
        RuntimeError: a command has failed; with its output.
    """
    given = ["--config", str(config), "--data.init_args.root", str(root.absolute()), *options]
    with TemporaryDirectory(prefix="time-to-quality-") as folder:
        run = "--run_name", "run"
        with _started("fit", [*given, *run], Path(folder)) as process:
            course = _until(process, Path(folder), target)
            # Stopped as a scheduler stops a run: best.ckpt of the validation exists or is being written.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(_ENDING)
        with _started("test", [*given, *run], Path(folder)) as process:
            if process.wait(_ENDING):
                raise RuntimeError(f"train.py test ended with {process.returncode}:\n{_output(Path(folder))}")
        test = {key: value for key, value in list(_records(Path(folder)))[-1].items() if key.startswith("test/")}
    return {
        "name": NAME,
        "config": config.stem,
        "target": target,
        "course": [validation._asdict() for validation in course],
        "test": {key: value for key, value in test.items() if "/baseline/" not in key},
    }


def table(found: dict[str, Any]) -> Group:
    """Return a table with a row per validation; the last has reached the target."""
    title = f"{found['config']}: time to {METRIC} {found['target']:g} on MovieLens-1M, from the start of train.py fit"
    sheet = Table(box=box.SIMPLE_HEAD)
    for heading in ("epoch", "optimizer steps", METRIC, "CPU s", "wall s", "memory at most"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for line in found["course"]:
        sheet.add_row(
            str(line["epoch"]),
            f"{line['step']:,}",
            f"{line['value']:.4f}",
            f"{line['cpu']:,.0f}",
            f"{line['wall']:,.0f}",
            f"{line['memory'] / 2**20:,.0f} MiB",
        )
    metrics = ", ".join(f"{name.removeprefix('test/')} {value:.4f}" for name, value in found["test"].items())
    return Group(title, sheet, f"train.py test of that checkpoint: {metrics}")


@contextmanager
def _started(command: str, arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start `train.py COMMAND` in its own process group, which is killed afterwards; its output is kept."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(_ROOT / "train.py"), command, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until(process: subprocess.Popen[bytes], folder: Path, target: float) -> list[Validation]:
    """Return every validation up to the first that reaches the target."""
    run, begin, memory, course = psutil.Process(process.pid), time.perf_counter(), 0, list[Validation]()
    while True:
        # The process is polled before the records are read: an ended process has written all of them.
        ended = process.poll() is not None
        if not ended:
            cpu, now = _spent(run)
            wall, memory = time.perf_counter() - begin, max(memory, now)
        new = [record for record in _records(folder) if METRIC in record][len(course) :]
        for record in new:
            course.append(Validation(record["epoch"], record["step"], record[METRIC], cpu, wall, memory))
            if record[METRIC] >= target:
                return course
        if ended:
            reached = f"; {METRIC} was at most {max(one.value for one in course):.4f}" if course else ""
            raise Missed(f"train.py fit ended with {process.returncode} before {target:g}{reached}:\n{_output(folder)}")
        time.sleep(_LOOK)


def _spent(run: psutil.Process) -> tuple[float, int]:
    """Return CPU seconds and bytes of a process and its descendants."""
    cpu, memory = 0.0, 0
    with suppress(psutil.NoSuchProcess):
        times = run.cpu_times()
        # Workers that have ended are no longer among the children below.
        cpu += times.children_user + times.children_system  # of ended processes
        for process in (run, *run.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                cpu += times.user + times.system
                memory += process.memory_info().rss
    return cpu, memory


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the complete lines of the run's metrics.jsonl."""
    path = folder / "runs/run/metrics.jsonl"
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        # The run may be writing the last line.
        if line.endswith("\n"):
            yield json.loads(line)


def _output(folder: Path) -> str:
    return (folder / "output.log").read_text(errors="replace")[-2000:]
