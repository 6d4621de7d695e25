"""Checks the progress of Lightning's loops in a checkpoint, and converts it for the run that resumes from it."""

from collections.abc import Mapping
from typing import Any

from engine.lightning_internals.checkpoint_layout import BATCHES, EPOCHS, fit_loop

_COUNTERS = ("ready", "started", "processed", "completed")


def check_epochs(checkpoint: Mapping[str, Any], max_epochs: int | None, source: str) -> None:
    """Check that a run trains at least as many epochs as its checkpoint has finished.

    A run that trains as many has nothing left to train, which is not an error.

    Args:
        checkpoint: content of the checkpoint of a fit.
        max_epochs: `trainer.max_epochs`; -1 or None means no limit.
        source: the checkpoint, for the message.

    Raises:
        ValueError: the checkpoint has finished more epochs.
    """
    finished = fit_loop(checkpoint)[EPOCHS]["current"]["processed"]
    if max_epochs is not None and 0 <= max_epochs < finished:
        raise ValueError(
            f"trainer.max_epochs: found {max_epochs}, expected at least {finished}, the finished epochs of {source}; "
            f"set --trainer.max_epochs {finished + 1} or more to train on, or another --run_name to start from scratch"
        )


def convert_progress(checkpoint: dict[str, Any], saved: int, accumulation: int) -> None:
    """Convert the counters of a checkpoint in place, before Lightning loads them.

    Lightning counts micro-batches, so its counters change with the accumulation.

    Args:
        checkpoint: content of the checkpoint of a fit.
        saved: micro-batches of an optimizer step when it was saved.
        accumulation: micro-batches of an optimizer step now.
    """
    progress = fit_loop(checkpoint)[BATCHES]
    for counters in (progress["total"], progress["current"]):
        behind = counters["processed"] - counters["completed"]  # 1 in `on_train_batch_end`, else 0
        # Whole optimizer steps, in micro-batches of this run.
        finished = counters["processed"] // saved * accumulation
        counters.update(dict.fromkeys(_COUNTERS, finished), completed=finished - behind)


def complete_epoch(checkpoint: dict[str, Any]) -> bool:
    """Convert a checkpoint from the end of an epoch, in place, as if it was saved before the next epoch.

    In `on_train_epoch_end` Lightning has counted the epoch as processed, but not as completed, and still counts the
    batches of this epoch.

    Args:
        checkpoint: content of the checkpoint of a fit.

    Returns:
        Whether the epoch has ended. A checkpoint from within an epoch is not changed.
    """
    loop = fit_loop(checkpoint)
    epochs, batches = loop.get(EPOCHS), loop.get(BATCHES)
    if epochs is None or batches is None or epochs["total"]["started"] != epochs["total"]["processed"]:
        return False
    for counters in epochs.values():
        counters["completed"] = counters["processed"]
    batches["current"] = dict.fromkeys(_COUNTERS, 0)
    batches["is_last_batch"] = False
    return True
