"""Counts steps for log intervals after a resume as in a run that was never stopped."""

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.lightning_internals.training_loop import set_log_step


class ResumeLogStep(Callback):
    """Sets Lightning's count of the steps that intervals of logging refer to, after a checkpoint has been loaded.

    Lightning counts a step after its validation. On a resume it adds 1 to the saved count or not, depending on where in
    an epoch the checkpoint was saved. The count is wrong by 1 if the checkpoint was saved in a validation between
    intervals.

    This callback comes before the callbacks that log in the same hooks.
    """

    def __init__(self) -> None:
        self._is_resumed = False

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        self._is_resumed = trainer.state.fn == "fit"

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._is_resumed and not trainer.sanity_checking:
            # The validation belongs to the last step, which Lightning counts after it.
            set_log_step(trainer, trainer.global_step - 1)

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if self._is_resumed:
            set_log_step(trainer, trainer.global_step)
            self._is_resumed = False
