"""What happens to a run besides its figures, by names that its log, its metrics and its report share.

A line of the log that tells of an event says so: ``log.warning("...", extra=event("straggler", process=3))``. The text
is for people and may be put better any day; name and fields are for programs.
"""

from collections.abc import Mapping
from logging import LogRecord
from typing import Any

EVENTS: dict[str, str] = {
    "run_started": "training begins, at step 0",
    "run_resumed": "training goes on from a checkpoint",
    "run_ended": "training has come to its end",
    "run_failed": "an error ends the run",
    "run_preempted": "the run saves and ends because it was told to (SIGTERM, SIGUSR1, SLURM's time limit)",
    "run_requeued": "the SLURM job goes back into the queue",
    "run_restarted": "the launcher has started the processes again",
    "evaluated": "an evaluation is done",
    "checkpoint_saved": "a checkpoint is whole and on the disk",
    "checkpoint_failed": "a checkpoint could not be written",
    "checkpoint_passed_over": "a checkpoint that is not whole is not used",
    "gradients_not_finite": "a step is left out because loss or gradients were not finite",
    "rolled_back": "training goes back to an earlier checkpoint after steps that were not finite",
    "process_lost": "a process is gone, stands still or does not answer, and the others end",
    "straggler": "one process takes longer than the others",
    "waiting_for_data": "the processes wait for their loaders",
    "sample_left_out": "a sample that cannot be used is left out",
    "memory_rising": "memory goes on rising from log to log",
    "out_of_memory": "memory did not suffice",
    "tracker_failed": "a record at W&B or MLflow has an end, the run goes on without it",
    "disk_full": "a file of the run cannot be written",
}
"""Every event's name, and what it means."""


OF_A_PROCESS = frozenset(
    {"run_failed", "run_requeued", "process_lost", "sample_left_out", "out_of_memory", "disk_full"}
)
"""Of these one process alone may know; the others are told by the first one, or by all alike."""

UNSAID = {"unsaid": True}
"""Beside an event's: the text console leaves the line out, as people are told otherwise or need not be."""

SAID = {"said": True}
"""Of a line for people: the JSON console leaves it out, as an event's line has said the same."""


def event(name: str, **fields: Any) -> dict[str, Any]:
    """The ``extra`` of a line of the log that tells of an event.

    Args:
        name: one of EVENTS.
        fields: what a program would want to know of it, as JSON has it.

    Raises:
        ValueError: there is no such event.
    """
    if name not in EVENTS:
        raise ValueError(f"no event {name!r}; there are {', '.join(EVENTS)}")
    return {"event": name, "fields": fields}


def event_of(record: LogRecord) -> tuple[str | None, Mapping[str, Any]]:
    """The event that a line of the log tells of, None if of none, and its fields."""
    return getattr(record, "event", None), getattr(record, "fields", {})
