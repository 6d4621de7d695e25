"""Requeues the SLURM job of a run that is stopped or has lost a rank."""

import logging
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from engine.checkpointing.discovery import CHECKPOINTS
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

_TIMEOUT = 30.0  # seconds for scontrol


def requeue_job(environ: Mapping[str, str], has_progress: bool = True) -> None:
    """Run `scontrol requeue` for a running batch job, or log why the job is not requeued.

    A job that is canceled, has reached its time limit, or is being requeued by SLURM has another state when its
    processes receive a signal. Does nothing outside SLURM. Never raises: the run is saved and must end.

    Args:
        environ: environment variables.
        has_progress: whether this start has finished a step. A job that is requeued repeatedly without progress would
            be requeued forever.
    """
    if "SLURM_JOB_ID" not in environ:
        return
    job = environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in environ:
        job = f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    try:
        # `scontrol show job` prints Key=Value pairs, separated by spaces.
        facts = dict(re.findall(r"(\w+)=(\S*)", _scontrol("show", "job", job)))
        reason = _reason_to_stay(facts)
        if reason:
            log.warning("SLURM job %s is not requeued: %s", job, reason)
            return
        # A first start may be stopped early by chance; a second without a step shows that the limit is too short.
        restarts = int(environ.get("SLURM_RESTART_COUNT", "0"))
        if restarts and not has_progress:
            log.error(
                "SLURM job %s is not requeued: restart %d was stopped before it finished a step. Submit it again with "
                "more time (--time) than a start takes", job, restarts,
            )  # fmt: skip
            return
        _scontrol("requeue", job)
        log.warning("SLURM job %s is requeued and resumes from here", job, extra=event("run_requeued", job=job))
    except (OSError, subprocess.SubprocessError) as error:
        stderr = getattr(error, "stderr", "") or ""
        log.error("SLURM job %s could not be requeued, submit it again: %s %s", job, error, stderr.strip())


def checkpoint_times(folder: Path) -> dict[Path, int]:
    """Return the modification time of each checkpoint of a run."""
    written = {}
    for path in folder.glob(f"{CHECKPOINTS}/*.ckpt"):
        with suppress(FileNotFoundError):  # another rank may be replacing it
            written[path] = path.stat().st_mtime_ns
    return written


def requeue_if_saved(folder: Path, before: dict[Path, int]) -> None:
    """Requeue a SLURM job that has lost a rank, if it has saved a checkpoint since it started.

    SLURM itself requeues when it notices that a node is down, perhaps before this. Without a new checkpoint the next
    start would repeat the same steps, and might lose the rank again, forever.

    Args:
        folder: of the run.
        before: `checkpoint_times` of the folder when this start began.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return
    if checkpoint_times(folder) == before:
        log.warning("the SLURM job is not requeued: it has saved nothing since it started")
    else:
        requeue_job(os.environ)


def _reason_to_stay(facts: Mapping[str, str]) -> str:
    if facts.get("JobState") != "RUNNING":
        return f"its state is {facts.get('JobState')}"
    if facts.get("BatchFlag", "1") == "0":
        return "it is not a batch job"
    if facts.get("Requeue", "1") == "0":
        return "it was submitted with --no-requeue"
    return ""


def _scontrol(*arguments: str) -> str:
    # The output has the user's names and paths, of any bytes.
    return subprocess.run(
        ["scontrol", *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=True,
        timeout=_TIMEOUT,
    ).stdout
