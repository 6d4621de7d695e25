"""How much time the real training of SASRec on MovieLens-1M takes until validation NDCG@10 is what was asked for.

`train.py fit` runs in a process group of its own with one thread; its metrics.jsonl is followed from outside. What can
be watched is validation: the run ends at the first one that reaches the target, and `train.py test` says what that
checkpoint is worth on the test items. The figures hold everything from the start of the process on: imports, conversion
of the files, baselines, validations and checkpoints.
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
    """One validation, and what the run has taken until it was written."""

    epoch: int
    step: int
    value: float
    cpu: float  # seconds, of the run's processes
    wall: float  # seconds
    memory: int  # bytes of the run's processes together, the most of all looks until then


class Missed(RuntimeError):
    """The run has ended without reaching the target."""


def figures(root: Path, target: float, config: Path = CONFIG, options: Sequence[str] = ()) -> dict[str, Any]:
    """Trains until the target, then tests; nothing of it is left behind.

    Args:
        root: folder with the files of MovieLens-1M.
        target: of the validation metric.
        config, options: of `train.py fit`, and of `train.py test`.

    Raises:
        Missed: the training has ended before; with what it reached.
        RuntimeError: a command has failed; with what it said.
    """
    given = ["--config", str(config), "--data.init_args.root", str(root.absolute()), *options]
    with TemporaryDirectory(prefix="time-to-quality-") as folder:
        run = "--run_name", "run"
        with _started("fit", [*given, *run], Path(folder)) as process:
            course = _until(process, Path(folder), target)
            # As a scheduler stops a run: what the validation was best with is in best.ckpt, or is just being written.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(_ENDING)
        with _started("test", [*given, *run], Path(folder)) as process:
            if process.wait(_ENDING):
                raise RuntimeError(f"train.py test ended with {process.returncode}:\n{_said(Path(folder))}")
        test = {key: value for key, value in list(_records(Path(folder)))[-1].items() if key.startswith("test/")}
    return {
        "name": NAME,
        "config": config.stem,
        "target": target,
        "course": [validation._asdict() for validation in course],
        "test": {key: value for key, value in test.items() if "/baseline/" not in key},
    }


def table(found: dict[str, Any]) -> Group:
    """A line a validation; the last one has reached the target."""
    title = f"{found['config']}: time to {METRIC} {found['target']:g} on MovieLens-1M, from the start of train.py fit"
    sheet = Table(box=box.SIMPLE_HEAD)
    for heading in ("epoch", "optimizer steps", METRIC, "CPU s", "wall s", "memory at most"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for line in found["course"]:
        sheet.add_row(
            str(line["epoch"]), f"{line['step']:,}", f"{line['value']:.4f}", f"{line['cpu']:,.0f}",
            f"{line['wall']:,.0f}", f"{line['memory'] / 2**20:,.0f} MiB",
        )  # fmt: skip
    figures = ", ".join(f"{name.removeprefix('test/')} {value:.4f}" for name, value in found["test"].items())
    return Group(title, sheet, f"train.py test of that checkpoint: {figures}")


@contextmanager
def _started(command: str, arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`train.py COMMAND` in a process group of its own, of which nothing is left afterwards; what it says is kept."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(_ROOT / "train.py"), command, *arguments],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until(process: subprocess.Popen[bytes], folder: Path, target: float) -> list[Validation]:
    """Every validation up to the first that reaches the target."""
    run, begin, memory, course = psutil.Process(process.pid), time.perf_counter(), 0, list[Validation]()
    while True:
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
            raise Missed(f"train.py fit ended with {process.returncode} before {target:g}{reached}:\n{_said(folder)}")
        time.sleep(_LOOK)


def _spent(run: psutil.Process) -> tuple[float, int]:
    """CPU seconds and bytes of a process and all that it has started."""
    cpu, memory = 0.0, 0
    with suppress(psutil.NoSuchProcess):
        times = run.cpu_times()
        cpu += times.children_user + times.children_system  # of those that have ended
        for process in (run, *run.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                cpu += times.user + times.system
                memory += process.memory_info().rss
    return cpu, memory


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    """Of the run's metrics.jsonl, those that are written to their end."""
    path = folder / "runs/run/metrics.jsonl"
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            yield json.loads(line)


def _said(folder: Path) -> str:
    return (folder / "said").read_text(errors="replace")[-2000:]
