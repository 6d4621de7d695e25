"""A run that was stopped in the validation after its very last step does that validation when it goes on."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.last_checkpoint import LastCheckpoint


class DueValidation(Callback):
    """Lightning sees `max_steps` reached and returns before it looks at the validation that the checkpoint has begun.

    So the limit is one step further away until that validation starts; no step is trained.
    """

    def __init__(self) -> None:
        self._max_steps: int | None = None
        self._has_run = False

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        loops = checkpoint.get("loops", {}).get("fit_loop", {})
        batches = loops.get("epoch_loop.val_loop.batch_progress", {}).get("total", {})
        if trainer.state.fn != "fit" or batches.get("started") == batches.get("processed"):
            return
        loop = trainer.fit_loop.epoch_loop
        if 0 <= loop.max_steps <= checkpoint["global_step"]:
            self._max_steps = loop.max_steps
            loop.max_steps = checkpoint["global_step"] + 1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.fit_loop.epoch_loop._should_check_val_fx(trainer.fit_loop._data_fetcher):
            self._restore(trainer)  # the config asks for no validation there any more

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self._has_run = self._max_steps is not None
            self._restore(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_last_batch:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer)

    def _restore(self, trainer: Trainer) -> None:
        if self._max_steps is not None:
            trainer.fit_loop.epoch_loop.max_steps, self._max_steps = self._max_steps, None

    def _save(self, trainer: Trainer) -> None:
        """The last checkpoint is of this very step, but would have the validation done once more."""
        if not self._has_run:
            return
        self._has_run = False
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, LastCheckpoint) and not trainer.fast_dev_run:
                callback.save_now(trainer)
