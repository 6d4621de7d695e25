"""Defines the compared variants and their settings."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.packages.driver_process import Command
from benchmarks.packages.environments import install_environment, own_variables
from benchmarks.variant_process import ONE_THREAD

DRIVERS = Path(__file__).with_name("drivers")
_ROOT = Path(__file__).resolve().parents[2]

SETTINGS: dict[str, Any] = {
    "length": 200,
    "hidden_size": 64,
    "blocks": 2,
    "heads": 1,
    "dropout": 0.2,
    "batch_size": 128,
    "evaluation_batch_size": 256,
    "learning_rate": 0.001,
    "steps": 300,  # of `learn`; `train` continues as long as requested
    "config": str(_ROOT / "configs/recommender/sasrec.yaml"),  # Lockstep's options, before those below
}
"""Settings of all variants: feed-forward layers as wide as the states, cross-entropy over all items."""


@dataclass(frozen=True)
class Variant:
    """A package, or this project.

    Attributes:
        name: name in the table.
        script: script of the driver.
        package: package whose environment runs it; None is this process's Python and code.
        prefixes: whether it trains on every prefix as a row with one target, instead of on a row per user.
        steps: steps of a turn; None is an epoch.
    """

    name: str
    script: str
    package: str | None
    prefixes: bool = False
    steps: int | None = None

    def command(self, environments: Path) -> Command:
        """Return the command of its driver, and create the package's environment.

        Raises:
            NotInstalled: the environment could not be created.
        """
        script = DRIVERS / self.script
        if self.package is None:
            # The driver's working directory is its temporary folder, and its code is this project's.
            variables = {**os.environ, "PYTHONPATH": str(_ROOT), **ONE_THREAD}
            return Command(self.name, Path(sys.executable), script, variables)
        return Command(self.name, install_environment(self.package, environments), script, own_variables())


# All steps of a variant that pads every row to L cost the same, so a few suffice. Those of Lockstep depend on the
# lengths of the rows.
VARIANTS = (
    Variant("RecBole", "recbole_sasrec.py", "recbole", prefixes=True, steps=8),
    Variant("RecTools", "rectools_sasrec.py", "rectools", steps=2),
    Variant("ours", "lockstep_sasrec.py", None),
)
