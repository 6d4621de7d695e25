"""Names the events of a run, which its log, its metrics endpoint and its report share.

A log record of an event names it: `log.warning("...", extra=event("straggler", rank=3))`. The message is for
people and may change; the event's name and fields are for programs and are stable.
"""

from collections.abc import Mapping
from logging import LogRecord
from typing import Any

EVENTS: dict[str, str] = {
    "run_started": "training begins at step 0",
    "run_resumed": "training resumes from a checkpoint",
    "run_ended": "training is finished",
    "run_failed": "an error ends the run",
    "run_preempted": "the run saves a checkpoint and ends on request (SIGTERM, SIGUSR1, Ctrl-C, SLURM's time limit)",
    "run_requeued": "the SLURM job is requeued",
    "run_restarted": "the launcher has restarted the ranks",
    "evaluated": "an evaluation is finished",
    "checkpoint_saved": "a checkpoint is complete on the disk",
    "checkpoint_kept": "a checkpoint has a name that no rotation deletes",
    "checkpoint_failed": "a checkpoint could not be written",
    "checkpoint_skipped": "a corrupt checkpoint is skipped",
    "gradients_not_finite": "a step's gradient is NaN or infinite; `policy` is what follows: stop, skip or rollback",
    "rolled_back": "training goes back to an earlier checkpoint after steps that were not finite",
    "process_lost": "a rank has died, hangs or does not respond, and the other ranks exit",
    "straggler": "one rank is slower than the others",
    "waiting_for_data": "the ranks wait for their data loaders",
    "sample_skipped": "a bad sample is skipped",
    "memory_rising": "memory use grows from log to log",
    "out_of_memory": "memory is exhausted",
    "tracker_failed": "logging to TensorBoard, W&B or MLflow has failed; the run continues without it",
    "disk_full": "a file of the run cannot be written",
}
"""{name of an event: what has happened}"""

RANK_LOCAL_EVENTS = frozenset(
    {"run_failed", "run_requeued", "process_lost", "sample_skipped", "out_of_memory", "disk_full"}
)
"""Events that a single rank may see. All other events are logged by rank 0, or by all ranks alike."""

HIDDEN_ON_CONSOLE = {"hidden_on_console": True}
"""Added to an event's extra: the text console drops the record, because people see its content elsewhere."""

ALREADY_SHOWN = {"already_shown": True}
"""Extra of a record for people: the JSON console drops it, because the record of an event has the same content."""


def event(name: str, **fields: object) -> dict[str, Any]:
    """Return the `extra` of a log record of an event.

    Args:
        name: one of EVENTS.
        fields: details for programs, as JSON values.

    Raises:
        ValueError: there is no such event.
    """
    if name not in EVENTS:
        raise ValueError(f"no event {name!r}; there are {', '.join(EVENTS)}")
    rank = fields.get("rank")
    return {"event": name, "fields": fields | rank_keys(rank) if isinstance(rank, int) else fields}


def rank_keys(rank: int) -> dict[str, int]:
    """Return the key `rank` of a line of JSON, and `process`, its name in 0.1.0, which is written until 0.3.0."""
    return {"rank": rank, "process": rank}


def event_of(record: LogRecord) -> tuple[str | None, Mapping[str, Any]]:
    """Return (name of the record's event, or None; its fields)."""
    return getattr(record, "event", None), getattr(record, "fields", {})
