"""Checks the metric of Lightning's EarlyStopping, and lets a resumed run take its settings from the config."""

import logging
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from typing_extensions import override

from engine.checkpointing.checkpoint_schema import declare_callback
from engine.checkpointing.schema import COUNT, SCALAR, fields
from engine.distributed.errors import CollectiveInputError
from engine.run_trainer import as_run_trainer

log = logging.getLogger("lockstep")

declare_callback(
    "EarlyStopping", fields({"wait_count": COUNT, "stopped_epoch": COUNT, "best_score": SCALAR, "patience": COUNT})
)


class EarlyStoppingFromConfig(Callback):
    """Takes the patience of EarlyStopping from the config; Lightning would restore it from the checkpoint.

    A metric that is not logged is refused in the sanity check; Lightning would end the run after its first epoch. A
    run without a sanity check is refused after its first validation.
    """

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a metric of a validation that is switched off; Lightning would end the run after its first epoch."""
        if stage != "fit" or as_run_trainer(trainer).limit_val_batches:
            return
        for callback in trainer.early_stopping_callbacks:
            if isinstance(callback, EarlyStopping) and callback.strict and callback.monitor.startswith("val/"):
                raise MisconfigurationException(
                    f"trainer.limit_val_batches is 0, so EarlyStopping has no {callback.monitor}. Remove it with "
                    "--trainer.callbacks null, or set trainer.limit_val_batches to 1 or more"
                )

    @override
    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._require_monitors(trainer, MisconfigurationException)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # All ranks log the same metrics, so all of them raise.
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._require_monitors(trainer, CollectiveInputError)

    @staticmethod
    def _require_monitors(trainer: Trainer, error_type: type[Exception]) -> None:
        logged = sorted(name for name in trainer.callback_metrics if name.startswith("val/"))
        for callback in trainer.early_stopping_callbacks:
            if not isinstance(callback, EarlyStopping) or not callback.strict or not logged:
                continue
            # A metric of the training is not known before the first step.
            if callback.monitor not in trainer.callback_metrics and not callback.monitor.startswith("train/"):
                raise error_type(
                    f"trainer.callbacks: the monitor of EarlyStopping is {callback.monitor!r}, which is not logged. "
                    f"Use one of the validation metrics: {logged}"
                )

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # Lightning calls this hook before it restores the states, so a change of the checkpoint takes effect.
        for callback in trainer.early_stopping_callbacks:
            state = checkpoint.get("callbacks", {}).get(callback.state_key)
            if isinstance(callback, EarlyStopping) and state is not None:
                state["patience"] = callback.patience

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Otherwise a run that early stopping has ended trains one more epoch each time it is started again.
        for callback in trainer.early_stopping_callbacks:
            # A new run has waited for no evaluation, and with a patience of 0 that must not end it.
            if isinstance(callback, EarlyStopping) and callback.wait_count >= max(callback.patience, 1):
                log.info("%s had not improved for %d evaluations: done", callback.monitor, callback.wait_count)
                trainer.should_stop = True
