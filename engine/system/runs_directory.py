"""Returns the directory of all runs: the variable LOCKSTEP_RUNS, which `--runs DIR` sets, else `runs`."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "LOCKSTEP_RUNS"

_DEFAULT = Path("runs")


def runs_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of all runs, which need not exist.

    Args:
        environ: environment variables; None for `os.environ`.
    """
    return Path((os.environ if environ is None else environ).get(VARIABLE) or _DEFAULT)


def run_options(folder: Path) -> str:
    """Return the options that name a run on the command line, for messages."""
    name = f"--run_name {shlex.quote(folder.resolve().name)}"
    runs = shlex.quote(str(folder.parent))
    return name if folder.resolve().parent == _DEFAULT.resolve() else f"--runs {runs} {name}"
