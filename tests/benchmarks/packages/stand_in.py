"""Drivers of packages that do not exist: the protocol without minutes of training."""

import os
import sys
from pathlib import Path

from benchmarks.packages.driver_process import Command
from benchmarks.packages.variants import DRIVERS

WORKS = """
from turns import Turns

turns = Turns()
print("a package that prints")
turns.begin(package="1.2.3", torch="2.0")
while True:
    sum(range(100_000))  # some CPU time
    print("prints more")
    turns.done(rows=3, targets=turns.settings["batch_size"], users=5, ndcg=0.95)
"""

BREAKS = """
from turns import Turns

turns = Turns()
turns.begin(package="0", torch="0")
raise ValueError("the package is broken")
"""


def command(folder: Path, name: str, source: str) -> Command:
    """A driver of that source."""
    script = folder / f"{name}.py"
    script.write_text(source)
    return Command(name, Path(sys.executable), script, {**os.environ, "PYTHONPATH": str(DRIVERS)})
