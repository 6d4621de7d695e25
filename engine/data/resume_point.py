"""Saves the position of a training in the order of its samples, and finds where a training resumes."""

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import Trainer

from engine.data.samplers import TrainSampler
from engine.lightning_internals.training_loop import micro_batches_processed


def resume_point(
    state: Mapping[str, Any], identity: Callable[[], Mapping[str, Any]], steps_in_epoch: int | None
) -> tuple[int, int]:
    """Return (epoch, global batches of it that are trained).

    Args:
        state: state of the DataModule in the checkpoint; empty without a checkpoint.
        identity: returns the settings of this run on which the order of an epoch depends.
        steps_in_epoch: global batches of an epoch; None for a stream.

    Raises:
        ValueError: the checkpoint is from the middle of an epoch with another order.
    """
    if not state:
        return 0, 0
    epoch, batches = state["epoch"], state["batches"]
    # At the end of an epoch no sample of the old order remains, so the next epoch may have another order.
    if batches:
        for key, value in identity().items():
            if state.get(key) != value:
                written = f"{key} {state[key]}" if key in state else f"no {key}"
                raise ValueError(
                    f"the checkpoint was written {batches} batches into epoch {epoch} with {written}, this run has "
                    f"{key} {value}: the remaining samples of the epoch are unknown. Resume with {written}, or from a "
                    "checkpoint at the end of an epoch"
                )
    if steps_in_epoch is not None and batches > steps_in_epoch:
        raise ValueError(
            f"the checkpoint was written {batches} batches into epoch {epoch}, but an epoch has {steps_in_epoch}: the "
            "checkpoint is not of these data, or was changed"
        )
    return epoch, batches


def position_to_save(trainer: Trainer, order: TrainSampler, accumulation: int) -> tuple[int, int]:
    """Return (epoch, global batches of it that are trained) for a checkpoint that is written now.

    Args:
        trainer: trainer of a fit.
        order: sampler of its training loader.
        accumulation: micro-batches of an optimizer step.
    """
    processed = micro_batches_processed(trainer)
    if order.is_at_start_position:  # until a batch is trained, Lightning's counters are still the checkpoint's
        return order.epoch, order.batches_done
    # Lightning's counters are reset when the next epoch begins, so the end of an epoch is saved as the start of the
    # next.
    if trainer.is_last_batch or processed >= trainer.num_training_batches:
        return order.epoch + 1, 0  # the end of the epoch, or of trainer.limit_train_batches
    return order.epoch, processed // accumulation
