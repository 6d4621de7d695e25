"""Validates the final weights of a training when its last step has no validation."""

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.lightning_internals.training_loop import is_last_micro_batch, request_validation, validation_follows


class FinalValidation(Callback):
    """Runs a validation after the last step of a training if none is due there.

    Lightning validates at intervals only. A training that `max_steps` ends inside an epoch, or after epochs that
    `check_val_every_n_epoch` does not divide, would end with weights that best.ckpt, the results table and early
    stopping have never seen. A short training would end without a best.ckpt.

    This callback comes before the callbacks that save checkpoints, because they check whether a validation follows.
    Without validations (`limit_val_batches: 0`) it does nothing.
    """

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if is_last_micro_batch(trainer) and is_last_step(trainer) and not validation_follows(trainer):
            request_validation(trainer)


def is_last_step(trainer: Trainer, max_steps: int | None = None) -> bool:
    """Return whether the training ends with the current step, by `max_steps` or `max_epochs`. Equal on all ranks.

    Args:
        trainer: trainer of the run.
        max_steps: the run's limit, if it is not the trainer's at the moment.
    """
    limit = trainer.max_steps if max_steps is None else max_steps
    if 0 <= limit <= trainer.global_step:
        return True
    # `current_epoch` counts finished epochs, so the current epoch is not among them.
    return trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs
