"""Determines the number of threads where it is known before a run starts to compute."""

import json
import logging
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Literal

import torch
from jsonargparse.typing import PositiveInt

from callbacks.performance.cpu_threads import THREADS_KEY, KnownThreads
from commands.launch.rank_zero_decision import decide_on_rank_zero
from engine.checkpointing.verification import CorruptCheckpointError, load_lazily
from engine.system.cpu_count import check_process_count

log = logging.getLogger("lockstep")

THREADS_TYPE = PositiveInt | Literal["auto"]

HELP = (
    "Threads of each rank on a CPU. auto: those of the run that is resumed or evaluated, else 1 or "
    "the rank's share of the cores, whichever trains faster in a short trial; all ranks use the same number. "
    "N or OMP_NUM_THREADS sets it without a trial. Loader workers have one thread each."
)

_OPTION = "--threads"
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables from which torch reads the number. A user or a launcher sets them."""


def set_threads(number: int, environ: MutableMapping[str, str] | None = None) -> None:
    """Set the threads of this process and its children to `--threads N`, also over the value of a launcher.

    Raises:
        ValueError: the machine has far too few cores.
    """
    environ = os.environ if environ is None else environ
    check_process_count("threads", number)
    # Child processes read the variable at their start; torch in this process has read it already.
    environ["OMP_NUM_THREADS"] = str(number)
    torch.set_num_threads(number)


def select_threads(option: int | Literal["auto"], checkpoint: str | None, resumed: Path | None) -> KnownThreads:
    """Return what rank 0 knows of the number of threads, on all ranks; see `known_threads`."""

    def select() -> str:
        return as_text(known_threads(option, os.environ, checkpoint, resumed))

    return from_text(decide_on_rank_zero("threads", select))


def known_threads(
    option: int | Literal["auto"], environ: Mapping[str, str], checkpoint: str | None, resumed: Path | None
) -> KnownThreads:
    """Return the stated or recorded number of threads; called on rank 0 for all ranks.

    Args:
        option: `--threads`.
        environ: environment variables.
        checkpoint: checkpoint that the command begins with.
        resumed: directory of the run that is resumed, which may have no checkpoint yet.
    """
    variable = next((name for name in _VARIABLES if environ.get(name)), "")
    set_by = variable if option == "auto" else _OPTION
    record = (_threads_of_checkpoint(Path(checkpoint)) if checkpoint else {}) or (
        _threads_of_run(resumed) if resumed else {}
    )
    number, processes = record.get("number"), record.get("processes")
    if not (isinstance(number, int) and isinstance(processes, int) and number > 0):
        return KnownThreads(set_by)
    return KnownThreads(set_by, number, processes)


def as_text(known: KnownThreads) -> str:
    """Serialize, for the ranks that receive the decision of rank 0; see `from_text`."""
    return json.dumps(known)


def from_text(text: str) -> KnownThreads:
    """Parse the output of `as_text`."""
    return KnownThreads(*json.loads(text))


def _threads_of_checkpoint(path: Path) -> dict[str, Any]:
    try:
        record = load_lazily(path).get(THREADS_KEY)
    except (CorruptCheckpointError, OSError) as error:  # reported when it is loaded
        log.debug("threads: %s", error)
        return {}
    return record if isinstance(record, dict) else {}


def _threads_of_run(folder: Path) -> dict[str, Any]:
    try:
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it does not exist yet, or a kill left it incomplete
        return {}
    if not isinstance(environment, dict) or environment.get("device") != "cpu":
        return {}
    return {"number": environment.get("threads"), "processes": environment.get("processes")}
