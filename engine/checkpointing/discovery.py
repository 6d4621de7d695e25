"""Lists the checkpoints of a run, newest first, and selects the newest intact one: corrupt checkpoints are skipped."""

import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.checkpointing.checkpoint_schema import require_checkpoint
from engine.checkpointing.verification import CorruptCheckpointError, load_lazily, verify
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints, inside the run's folder."""


def saved_at(path: Path) -> float:
    """Return the time at which a checkpoint was saved, in seconds since 1970.

    The time is read from the checkpoint. For a checkpoint that has none or cannot be read, return the file's time.
    """
    try:
        seconds = float(load_lazily(path)["saved_at"])
    except (ValueError, KeyError, TypeError, OSError):  # a corrupt checkpoint is a ValueError, too
        seconds = math.nan
    return seconds if math.isfinite(seconds) else path.stat().st_mtime


def list_checkpoints(folder: Path) -> list[Path]:
    """Return all checkpoints from which the run in `folder` can resume, newest first."""
    checkpoints = folder / CHECKPOINTS
    patterns = ("last.ckpt", "last-*.ckpt", "best.ckpt", "best-*.ckpt", "step-*.ckpt")
    # A glob per form: temporary files begin with a dot and do not match.
    paths = [path for pattern in patterns for path in checkpoints.glob(pattern)]
    paths += folder.glob("hpc_ckpt_*.ckpt")  # of plain Lightning, before SLURM requeues a job
    return sorted(paths, key=saved_at, reverse=True)


def newest_verified(folder: Path) -> Path | None:
    """Return the newest intact checkpoint of the run in `folder`, or None if the run has no checkpoint.

    An intact checkpoint verifies, has the keys of Lightning, and its keys hold what a run saves under them.

    Logs each checkpoint that is skipped. Call it on one rank only.

    Raises:
        CorruptCheckpointError: the run has checkpoints, but none of them is intact.
    """
    path, skipped = first_valid(list_checkpoints(folder), find_corruption)
    if path is None and skipped:
        raise CorruptCheckpointError(
            f"{folder} has checkpoints, but none of them is intact: {'; '.join(skipped)}. Restore one from a backup, "
            "name one with --ckpt_path FILE, or start from scratch with another --run_name"
        )
    if path is not None and skipped:
        log.warning("using %s instead", path.name)
    return path


def first_valid(paths: Iterable[Path], find_problem: Callable[[Path], str | None]) -> tuple[Path | None, list[str]]:
    """Return the first path without a problem, and a description of each path skipped before it.

    Args:
        paths: checkpoints in order of preference.
        find_problem: returns why a checkpoint cannot be used, None if it can.
    """
    skipped: list[str] = []
    for path in paths:
        problem = find_problem(path)
        if problem is None:
            return path, skipped
        details = event("checkpoint_skipped", path=str(path), reason=problem)
        log.warning("skipping %s: %s", path.name, problem, extra=details)
        skipped.append(f"{path.name} ({problem})")
    return None, skipped


def find_corruption(path: Path) -> str | None:
    """Return why a run cannot load a checkpoint, None if the checkpoint is intact."""
    try:
        verify(path)
        require_checkpoint(load_lazily(path), path)
    except (ValueError, OSError) as error:  # a corrupt checkpoint is a ValueError, too
        return str(error)
    return None
