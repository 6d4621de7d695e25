"""Converts the progress of Lightning's loops in a checkpoint to that of a run that resumes from it."""

from typing import Any

_COUNTERS = ("ready", "started", "processed", "completed")


def convert_progress(checkpoint: dict[str, Any], saved: int, accumulation: int) -> None:
    """Convert the counters of a checkpoint in place, before Lightning loads them.

    Lightning counts micro-batches, so its counters change with the accumulation.

    Args:
        checkpoint: content of the checkpoint of a fit.
        saved: micro-batches of an optimizer step when it was saved.
        accumulation: micro-batches of an optimizer step now.
    """
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    for counters in (progress["total"], progress["current"]):
        behind = counters["processed"] - counters["completed"]  # 1 in `on_train_batch_end`, else 0
        done = counters["processed"] // saved * accumulation
        counters.update(dict.fromkeys(_COUNTERS, done), completed=done - behind)


def complete_epoch(checkpoint: dict[str, Any]) -> bool:
    """Convert a checkpoint from the end of an epoch, in place, to one from between two epochs.

    In `on_train_epoch_end` Lightning has counted the epoch as processed, but not as completed, and the batches still
    are those of this epoch.

    Args:
        checkpoint: content of the checkpoint of a fit.

    Returns:
        Whether it is from the end of an epoch, or from between two. A checkpoint from within one is not changed.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop", {})
    epochs, batches = loops.get("epoch_progress"), loops.get("epoch_loop.batch_progress")
    if epochs is None or batches is None or epochs["total"]["started"] != epochs["total"]["processed"]:
        return False
    for counters in epochs.values():
        counters["completed"] = counters["processed"]
    batches["current"] = dict.fromkeys(_COUNTERS, 0)
    batches["is_last_batch"] = False
    return True
