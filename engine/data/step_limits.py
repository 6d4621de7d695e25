"""Converts the Trainer's limits, which count a rank's micro-batches, to limits in optimizer steps.

A run on more ranks accumulates fewer micro-batches. With Lightning's units it would be validated at other steps, would
thus choose its best checkpoint by other metrics, and would stop at another step. Lightning also limits an evaluation to
a number of batches per rank, so more ranks would evaluate more samples.
"""

from typing import Literal

from lightning.pytorch import Trainer


def convert_limits_to_micro_batches(trainer: Trainer, steps_in_epoch: int | None, accumulation: int) -> None:
    """Convert `limit_train_batches` and `val_check_interval` from optimizer steps to micro-batches.

    Call it once, before the fit loop is set up. Fractions are taken of the steps of an epoch and rounded down, as
    Lightning rounds batches.

    Args:
        trainer: trainer of the run; its limits are changed.
        steps_in_epoch: optimizer steps of an epoch. None for a stream, for which Lightning refuses fractions.
        accumulation: micro-batches of an optimizer step.

    Raises:
        ValueError: a fraction of the epoch is less than a step, so nothing would be trained.
    """
    limit, interval = trainer.limit_train_batches, trainer.val_check_interval
    # The float 1.0 is the whole epoch and stays. Lightning's integers are numbers of micro-batches.
    if isinstance(limit, float) and limit < 1 and steps_in_epoch is not None:
        if limit > 0 and steps_in_epoch * limit < 1:
            raise ValueError(
                f"trainer.limit_train_batches {limit:g} of the {steps_in_epoch} steps of an epoch is less than a step; "
                f"set an integer, which is a number of steps, or at least {1.001 / steps_in_epoch:.4g}"
            )
        limit = int(steps_in_epoch * limit)
    if isinstance(limit, int):
        trainer.limit_train_batches = limit * accumulation
        # A fraction of `val_check_interval` refers to the limited epoch.
        steps_in_epoch = limit if steps_in_epoch is None else min(limit, steps_in_epoch)
    if isinstance(interval, float) and interval < 1 and steps_in_epoch is not None:
        interval = max(1, int(steps_in_epoch * interval))
    if isinstance(interval, int):
        trainer.val_check_interval = interval * accumulation


def num_evaluation_batches(
    trainer: Trainer, stage: Literal["val", "test", "predict"], batches: int | None
) -> int | None:
    """Return the number of batches that `limit_{stage}_batches` allows over all ranks, or None for all batches.

    A fractional limit of the trainer is replaced by its number of batches, because Lightning would apply the fraction
    again to the batches of each rank.

    Args:
        trainer: trainer of the run.
        stage: the evaluation.
        batches: number of batches of the whole set. None for a stream, for which Lightning refuses fractions.
    """
    name = f"limit_{stage}_batches"
    limit = getattr(trainer, name)
    if isinstance(limit, float) and limit < 1 and batches is not None and int(batches * limit):  # Lightning refuses 0
        limit = int(batches * limit)
        setattr(trainer, name, limit)
    return limit if isinstance(limit, int) and limit > 0 else None
