"""Lets a run that is limited by steps resume at the end of an epoch with the next epoch's first batch."""

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.checkpointing.loop_progress import complete_epoch
from engine.lightning_internals.training_loop import start_next_epoch


class ResumeAtEpochEnd(Callback):
    """Completes the epoch of a checkpoint that was saved at the end of the epoch.

    Lightning does so for runs that `max_epochs` limits. With `max_steps` it assumes that every checkpoint is from
    the middle of an epoch: it would train one batch of the next epoch as part of the finished epoch, and skip the rest.
    """

    def __init__(self) -> None:
        self._is_completed = False

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        if trainer.state.fn == "fit" and trainer.max_steps != -1:
            self._is_completed = complete_epoch(checkpoint)

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._is_completed:
            start_next_epoch(trainer)
            self._is_completed = False
