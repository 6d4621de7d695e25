"""Measures the duration of samples, and of a step of the quickstart that trains on them."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.variant_process import one_thread
from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.datamodule import ResourceTimelines
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from engine.data.samplers import MicroBatchRequest

_ROOT = Path(__file__).resolve().parents[2]
_QUICKSTART = _ROOT / "configs/temporal/quickstart.yaml"
_BATCH, _STEPS = 32, 60
_SAMPLES = 320  # per turn


def measure(repeats: int) -> dict[str, Any]:
    """Return {name: a number for each turn}: milliseconds per sample, milliseconds per step, shares."""
    full = SyntheticTimelines(format="full", min_steps=20, max_steps=100)
    found: dict[str, list[float]] = {name: [] for name in ("tiny", "full", "rows", "step", "waiting", "share")}
    data = ResourceTimelines(batch_size=_BATCH, num_samples=_SAMPLES * repeats, packed_length=192, patch_length=5)
    data.setup("fit")
    data.train_set[MicroBatchRequest(0, np.arange(_BATCH))]  # one-time work
    for turn in range(repeats):
        indices = range(turn * _SAMPLES, (turn + 1) * _SAMPLES)
        tiny = _milliseconds(partial(data.synthesis.sample, Split.TRAIN, 0), indices)
        found["tiny"].append(tiny / _SAMPLES)
        found["full"].append(_milliseconds(partial(full.sample, Split.TRAIN, 0), indices) / _SAMPLES)
        draws = np.array(indices).reshape(-1, _BATCH)
        rows = _milliseconds(lambda draw: data.train_set[MicroBatchRequest(0, draw)], draws)
        # Rows contain the synthesis, which has a line of its own.
        found["rows"].append((rows - tiny) / _SAMPLES)
        step, waiting = _quickstart()
        found["step"].append(step)
        found["waiting"].append(waiting)
        found["share"].append(found["tiny"][-1] * _BATCH / step)
    return found


def table(found: dict[str, list[float]]) -> Table:
    """Return a table of the measurements with their spread, beside their goals."""
    table = Table(title="samples of the temporal family", title_justify="left")
    for heading in ("", "median", "range", "goal"):
        table.add_column(heading, justify="left" if heading in ("", "goal") else "right")
    rows = (
        ("synthesis, tiny format, a sample", "tiny", "{:.3f} ms", "at most 0.5 ms"),
        ("synthesis, full format, a sample", "full", "{:.3f} ms", "at most 0.5 ms"),
        ("tokens, in rows, a sample", "rows", "{:.3f} ms", ""),
        (f"the quickstart's step of {_BATCH}, 2 loader processes", "step", "{:.0f} ms", ""),
        ("the step waits for the loader", "waiting", "{:.2%}", "at most 5 %"),
        ("synthesis beside the step", "share", "{:.2%}", "at most 5 %"),
    )
    for label, name, form, goal in rows:
        turns = found[name]
        table.add_row(label, form.format(median(turns)), f"{form.format(min(turns))} - {form.format(max(turns))}", goal)
    return table


def _milliseconds(work: Callable[[Any], object], over: Iterable[Any]) -> float:
    """Return the CPU milliseconds of the work per item."""
    before = time.process_time()
    for one in over:
        work(one)
    return 1000 * (time.process_time() - before)


def _quickstart() -> tuple[float, float]:
    """Return (milliseconds per step, share of it that waits for data), over the second half of a short training."""
    options = [
        "--data.init_args.num_workers=2",
        f"--trainer.max_steps={_STEPS}",
        "--trainer.max_epochs=1",
        "--trainer.check_val_every_n_epoch=2",
        "--trainer.enable_progress_bar=false",
        "--trainer.accelerator=cpu",
        "--data.init_args.easy_epochs=0",
        "--run_name=benchmark",
    ]
    with tempfile.TemporaryDirectory() as folder, one_thread():
        subprocess.run(
            [sys.executable, str(_ROOT / "train.py"), "fit", "--config", str(_QUICKSTART), *options],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        lines = (Path(folder) / "runs/benchmark/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    # The first half starts workers and fills their queues.
    late = [record for record in records if record["step"] > _STEPS / 2 and "train/samples_per_second" in record]
    step = 1000 * _BATCH / median(record["train/samples_per_second"] for record in late)
    return step, median(record["train/data_wait"] for record in late)
