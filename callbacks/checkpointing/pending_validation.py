"""Lets a resumed run finish the validation after its last step, in which it was stopped."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.checkpointing.final_validation import is_last_step
from callbacks.checkpointing.last_checkpoint import save_last
from engine.lightning_internals.checkpoint_layout import VALIDATION_BATCHES, fit_loop
from engine.lightning_internals.training_loop import request_validation, set_max_steps, validation_follows


class ResumePendingValidation(Callback):
    """Runs the validation that a checkpoint of the last step has started and not finished.

    Lightning returns when `max_steps` is reached, before it resumes a validation. So the limit is one step higher until
    the validation starts. No step is trained.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._max_steps: int | None = None
        self._has_run = False

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        batches = fit_loop(checkpoint).get(VALIDATION_BATCHES, {}).get("total", {})
        # A batch that is started and not processed marks a pending validation; see `Preemption`.
        if trainer.state.fn != "fit" or batches.get("started") == batches.get("processed"):
            return
        self._is_pending = True
        if 0 <= trainer.max_steps <= checkpoint["global_step"]:
            self._max_steps = trainer.max_steps
            set_max_steps(trainer, checkpoint["global_step"] + 1)

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._is_pending and not validation_follows(trainer) and is_last_step(trainer, self._max_steps):
            request_validation(trainer)  # as FinalValidation did before the stop
        if not validation_follows(trainer):
            self._restore(trainer)  # the config has changed, and no validation is due

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self._has_run = self._max_steps is not None
            self._restore(trainer)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # After the last batch of an epoch, `on_train_epoch_end` saves: the epoch has ended then.
        if not trainer.is_last_batch:
            self._save(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer)

    def _restore(self, trainer: Trainer) -> None:
        if self._max_steps is not None:
            set_max_steps(trainer, self._max_steps)
            self._max_steps = None

    def _save(self, trainer: Trainer) -> None:
        """Save again: the last checkpoint is of this step, but resuming from it would repeat the validation."""
        if not self._has_run:
            return
        self._has_run = False
        save_last(trainer)
