"""Limits that mean the same on any number of processes, where Lightning counts what one process does.

Lightning counts micro-batches where a user means optimizer steps: a run on more processes, which accumulates less,
would be validated at other steps, have other figures to choose its best checkpoint by, and stop earlier or later. And
it limits an evaluation to so many batches of each process: on more processes it would be of more samples.
"""

from typing import Literal

from lightning.pytorch import Trainer


def count_in_steps(trainer: Trainer, steps_in_epoch: int | None, accumulation: int) -> None:
    """Makes `limit_train_batches` and `val_check_interval` count optimizer steps; once, before the loop is set up.

    Fractions are of the epoch's steps, rounded down as Lightning rounds batches.

    Args:
        steps_in_epoch: None for a stream, of which Lightning takes no fractions.
    """
    limit, interval = trainer.limit_train_batches, trainer.val_check_interval
    if isinstance(limit, float) and limit < 1 and steps_in_epoch is not None:
        limit = int(steps_in_epoch * limit)
    if isinstance(limit, int):
        trainer.limit_train_batches = limit * accumulation
        steps_in_epoch = limit if steps_in_epoch is None else min(limit, steps_in_epoch)
    if isinstance(interval, float) and interval < 1 and steps_in_epoch is not None:
        interval = max(1, int(steps_in_epoch * interval))
    if isinstance(interval, int):
        trainer.val_check_interval = interval * accumulation


def batches_to_evaluate(trainer: Trainer, stage: Literal["val", "test", "predict"], batches: int | None) -> int | None:
    """How many evaluation batches, of all processes together, `limit_val_batches` and the like leave; None for all.

    A fraction is set to the number that it means: Lightning would take it once more, of a process's own batches.

    Args:
        batches: that there are; None for a stream, of which Lightning takes no fractions.
    """
    name = f"limit_{stage}_batches"
    limit = getattr(trainer, name)
    if isinstance(limit, float) and limit < 1 and batches is not None and int(batches * limit):  # Lightning refuses 0
        limit = int(batches * limit)
        setattr(trainer, name, limit)
    return limit if isinstance(limit, int) and limit > 0 else None
