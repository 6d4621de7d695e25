"""A resumed run does what its config says, also where Lightning's callbacks keep settings in their state."""

import logging
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

log = logging.getLogger("lockstep")


class ConfigOverCheckpoint(Callback):
    """EarlyStopping saves its patience beside its progress; who goes on with more patience would not get it."""

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        for callback in trainer.early_stopping_callbacks:
            state = checkpoint.get("callbacks", {}).get(callback.state_key)
            if isinstance(callback, EarlyStopping) and state is not None:
                state["patience"] = callback.patience

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A run that early stopping had ended would train one more epoch each time that it is started again.
        for callback in trainer.early_stopping_callbacks:
            if isinstance(callback, EarlyStopping) and callback.wait_count >= callback.patience:
                log.info("%s had not improved for %d evaluations: done", callback.monitor, callback.wait_count)
                trainer.should_stop = True
