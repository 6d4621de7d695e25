"""A SLURM job that was told to stop puts itself back into the queue."""

import logging
import re
import subprocess
from collections.abc import Mapping

from engine.events import event

log = logging.getLogger("lockstep")

_PATIENCE = 30.0  # seconds for scontrol's answer


def requeue_job(environ: Mapping[str, str], has_moved: bool = True) -> None:
    """`scontrol requeue` for a batch job that SLURM takes for running; says why where it does not.

    One that has come back and again not finished a step (`has_moved`) would come back for ever.

    A job that is cancelled, that has reached its time limit, or that SLURM is requeueing itself, has another state
    already when its processes are told. Does nothing outside a SLURM job; never raises, as the run is saved and ends.
    """
    if "SLURM_JOB_ID" not in environ:
        return
    job = environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in environ:
        job = f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    try:
        facts = dict(re.findall(r"(\w+)=(\S*)", _scontrol("show", "job", job)))
        reason = _reason_to_stay(facts)
        if reason:
            log.warning("SLURM job %s is left to SLURM: %s", job, reason)
            return
        restarts = int(environ.get("SLURM_RESTART_COUNT", "0"))
        if restarts and not has_moved:
            log.error(
                "SLURM job %s is not requeued: it has come back (restart %d) and been stopped before it could finish a "
                "step; give it more time (--time) than it takes to start, and submit it again", job, restarts,
            )  # fmt: skip
            return
        _scontrol("requeue", job)
        log.warning("SLURM job %s is requeued and goes on from here", job, extra=event("run_requeued", job=job))
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or ""
        log.error("SLURM job %s could not be requeued, submit it again: %s %s", job, error, said.strip())


def _reason_to_stay(facts: Mapping[str, str]) -> str:
    if facts.get("JobState") != "RUNNING":
        return f"its state is {facts.get('JobState')}"
    if facts.get("BatchFlag", "1") == "0":
        return "it is no batch job"
    if facts.get("Requeue", "1") == "0":
        return "it was submitted with --no-requeue"
    return ""


def _scontrol(*arguments: str) -> str:
    return subprocess.run(
        ["scontrol", *arguments], capture_output=True, text=True, check=True, timeout=_PATIENCE
    ).stdout
