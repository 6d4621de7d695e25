"""Starts the trainings, with their variables and the load beside them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from benchmarks.environment import goals_reached, spread
from benchmarks.threads.rate import PREFIX
from benchmarks.turn_order import turn_order
from benchmarks.variant_process import run_python
from engine.system.cpu_count import available_cpus

_ROOT = Path(__file__).resolve().parents[2]

CONFIGS = {
    "digits": "configs/image_classifier/digits.yaml",
    "recommender": "configs/recommender/quickstart.yaml",
    "temporal": "configs/temporal/quickstart.yaml",
}

BEFORE, ONE, DEFAULT = "before", "one thread", "default"
IDLE, BUSY = "idle cores", "one busy process beside it"

GOALS = {("digits", IDLE): 850.0, ("digits", BUSY): 650.0}
"""Goals of the default on two cores, in samples per second."""

_UNSET = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1000000): pass"
"""Busy process, which ends by itself when the benchmark is killed."""


class Variant(NamedTuple):
    """Options and variables of a variant."""

    variables: dict[str, str]
    options: list[str]


def variants() -> dict[str, Variant]:
    """Return the variants by name; `before` is the default of torch and its OpenMP library."""
    own_spin = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}
    return {
        BEFORE: Variant(own_spin, ["--threads", str(max(1, int(available_cpus())))]),
        ONE: Variant({"OMP_NUM_THREADS": "1"}, []),
        DEFAULT: Variant({}, []),
    }


class Measurement(NamedTuple):
    """Measurements of a training."""

    samples_per_second: float
    threads: int


def train(
    config: str, variant: Variant, folder: Path, seconds: float, warm_up: int = 5, timeout: float = 600
) -> Measurement:
    """Run a training and measure it for so many seconds.

    Raises:
        RuntimeError: it has failed; with its output.
        subprocess.TimeoutExpired: it took more than `timeout` seconds and was killed.
    """
    # The variables of the caller would decide for all variants.
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    environment |= {"PYTHONPATH": str(_ROOT), "COLUMNS": "120", **variant.variables}
    arguments = [
        str(_ROOT / "train.py"),
        "fit",
        f"--config={_ROOT / config}",
        *variant.options,
        "--trainer.accelerator=cpu",
        "--trainer.limit_val_batches=0",
        "--trainer.enable_progress_bar=false",
        "--trainer.max_epochs=-1",
        "--trainer.max_steps=100000000",
        "--last_checkpoint.every_n_steps=100000000",
        "--trainer.callbacks+=benchmarks.threads.rate.Rate",
        f"--trainer.callbacks.seconds={seconds}",
        f"--trainer.callbacks.warm_up={warm_up}",
    ]
    code, output, errors = run_python(arguments, folder, environment, timeout)
    found = next((line for line in output.splitlines() if line.startswith(PREFIX)), None)
    if code or found is None:
        raise RuntimeError(f"the training of {config} ended with {code}:\n{(output + errors)[-2000:]}")
    return Measurement(**json.loads(found.removeprefix(PREFIX)))


@contextmanager
def with_background_load(condition: str) -> Iterator[None]:
    """Run nothing, or a process that computes, while the context is active."""
    if condition == IDLE:
        yield
        return
    # Started anew for each training, so that the scheduler places both afresh.
    with subprocess.Popen([sys.executable, "-c", _BUSY]) as busy:
        try:
            yield
        finally:
            busy.kill()


def measure(repeats: int, names: Sequence[str], seconds: float) -> dict[str, Any]:
    """Measure every training with every variant under both conditions, in turns."""
    found: dict[tuple[str, str, str], list[Measurement]] = {}
    with TemporaryDirectory() as folder:  # shared, because all variants of a training prepare the same data
        for turn in range(repeats):
            for name in names:
                # Both conditions within a turn, so that they see the same state of the machine.
                for condition in (IDLE, BUSY):
                    for variant, stated in turn_order(variants().items(), turn):
                        with with_background_load(condition):
                            one = train(CONFIGS[name], stated, Path(folder), seconds)
                        found.setdefault((name, condition, variant), []).append(one)
    rows = [
        {
            "training": name,
            "condition": condition,
            "side": variant,
            "rates": [one.samples_per_second for one in all_turns],
            "threads": [one.threads for one in all_turns],
        }
        for (name, condition, variant), all_turns in found.items()
    ]
    return {"name": "threads", "rows": rows, "goals": _goals(rows)}


def _goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    goals = []
    for row in rows:
        bound = GOALS.get((row["training"], row["condition"]))
        if bound is not None and row["side"] == DEFAULT:
            found = median(row["rates"])
            text = f"{row['training']}, {row['condition']}: at least {bound:g} samples/s by default, on two cores"
            goals.append({"text": text, "found": found, "met": found >= bound})
    return goals


def table(found: dict[str, Any]) -> Table:
    """Return a table with a row for each training and condition."""
    sheet = Table(box=box.SIMPLE_HEAD, title="Threads: samples per second", title_justify="left", title_style="bold")
    sheet.add_column("")
    sheet.add_column("")
    for heading in (BEFORE, ONE, DEFAULT, "threads chosen"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    lines: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in found["rows"]:
        lines.setdefault((row["training"], row["condition"]), {})[row["side"]] = row
    for (name, condition), rates_by_variant in lines.items():
        rates = [
            spread(rates_by_variant[variant]["rates"]) if variant in rates_by_variant else ""
            for variant in (BEFORE, ONE, DEFAULT)
        ]
        chosen = rates_by_variant[DEFAULT]["threads"] if DEFAULT in rates_by_variant else []
        sheet.add_row(name, condition, *rates, ", ".join(map(str, chosen)))
    if found["goals"]:
        sheet.caption, sheet.caption_justify = goals_reached(found["goals"]), "left"
    return sheet
