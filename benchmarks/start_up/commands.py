"""Lists the commands to start, and measures a start."""

import json
import os
import resource
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from benchmarks.environment import goals_reached, ratios, spread
from benchmarks.start_up.first_step import PREFIX
from benchmarks.turn_order import turn_order
from benchmarks.variant_process import ONE_THREAD, run_python

_ROOT = Path(__file__).resolve().parents[2]
_TRAIN = str(_ROOT / "train.py")
_QUICKSTART = str(_ROOT / "configs/recommender/quickstart.yaml")

BASE = "python -c 'import torch'"
HELP, FIRST_STEP = "train.py --help", "train.py fit, first step of the quickstart"
OF_TWO = f"{FIRST_STEP}, one of 2 processes of torchrun"
_FIT = [
    _TRAIN,
    "fit",
    "--config",
    _QUICKSTART,
    "--trainer.accelerator",
    "cpu",
    "--trainer.callbacks+=benchmarks.start_up.first_step.FirstStep",
]
COMMANDS: dict[str, list[str]] = {
    BASE: ["-c", "import torch"],
    HELP: [_TRAIN, "--help"],
    "train.py fit --help": [_TRAIN, "fit", "--help"],
    FIRST_STEP: _FIT,
    OF_TWO: ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *_FIT, "--trainer.devices", "2"],
}

SECONDS = {HELP: 3.0, FIRST_STEP: 8.0}
"""Goals in wall time of an idle machine."""

TIMES = {FIRST_STEP: 3.2}
"""Goals in CPU time of `import torch`; reliable on a busy machine, too."""


class Start(NamedTuple):
    """Seconds and bytes of a start."""

    cpu: float
    wall: float
    memory: int  # of a training that waits after its first step


def start(arguments: list[str], folder: Path, timeout: float = 300) -> Start:
    """Run a Python command with a single thread and wait until it exits.

    Raises:
        RuntimeError: it has failed; with its output.
        subprocess.TimeoutExpired: it took too long; it and its descendants were killed.
    """
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(_ROOT), "COLUMNS": "120"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles the sources
    # CPU time of all children that have ended: the command, and what it started and waited for.
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code, output, errors = run_python(arguments, folder, environment, timeout)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise RuntimeError(f"{' '.join(arguments)} ended with {code}:\n{errors[-2000:]}")
    line = next((line for line in output.splitlines() if line.startswith(PREFIX)), None)
    # A training reports itself: it is suspended after the first step, and its shutdown is not measured.
    if line:
        return Start(**json.loads(line.removeprefix(PREFIX)))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(cpu, wall, 0)


def measure(repeats: int, commands: dict[str, list[str]] | None = None, warm_up: int = 1) -> dict[str, Any]:
    """Measure all commands in turns, after `warm_up` turns that fill the file caches."""
    commands = commands or COMMANDS
    taken: dict[str, list[Start]] = {name: [] for name in commands}
    for turn in range(warm_up + repeats):
        for name, arguments in turn_order(commands.items(), turn):
            with TemporaryDirectory() as folder:
                one = start(arguments, Path(folder))
            if turn >= warm_up:
                taken[name].append(one)
    variants = [
        {"name": name, **{key: [getattr(one, key) for one in starts] for key in Start._fields}}
        for name, starts in taken.items()
    ]
    return {"name": "start_up", "sides": variants, "goals": _goals(variants)}


def _goals(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    goals = []
    for variant in variants:
        if variant["name"] in SECONDS:
            found, bound = median(variant["wall"]), SECONDS[variant["name"]]
            text = f"{variant['name']}: under {bound:g} s on an idle machine"
            goals.append({"text": text, "found": found, "met": found < bound})
        if variant["name"] in TIMES:
            found, bound = median(ratios(variant["cpu"], variants[0]["cpu"])), TIMES[variant["name"]]
            text = f"{variant['name']}: at most {bound:g} times the CPU time of `import torch`"
            goals.append({"text": text, "found": found, "met": found <= bound})
    return goals


def table(found: dict[str, Any]) -> Table:
    """Return a table with a row per command; ratios are computed within a turn."""
    sheet = Table(box=box.SIMPLE_HEAD, title="Start-up", title_justify="left", title_style="bold")
    sheet.add_column("")
    for heading in ("CPU s", "wall s", "x import torch (CPU)", "idle memory*"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for variant in found["sides"]:
        sheet.add_row(
            variant["name"],
            spread(variant["cpu"]),
            spread(variant["wall"]),
            spread(ratios(variant["cpu"], found["sides"][0]["cpu"])),
            f"{median(variant['memory']) / 2**20:,.0f} MiB" if any(variant["memory"]) else "",
        )
    note = "* resident (RSS), of a training that is suspended after its first step"
    sheet.caption, sheet.caption_justify = f"{note}\n{goals_reached(found['goals'])}", "left"
    return sheet
