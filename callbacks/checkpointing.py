"""Two independent checkpoints of a run: the best by a validation metric, and the last.

Lightning ties `save_last` to the best: when the metric stops improving, the last checkpoint gets old as well. Here
each is a callback of its own, so a run that is killed goes on from where it was.
"""

from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

CHECKPOINTS = "checkpoints"
"""The folder of a run's checkpoints, inside the run's folder."""


class BestCheckpoint(ModelCheckpoint):
    """Keeps `checkpoints/best.ckpt`: the weights with the best value of a validation metric.

    Args:
        monitor: name of the validation metric, such as `val/ndcg@10`.
        mode: whether the metric is to be as large (`max`) or as small (`min`) as can be.
    """

    def __init__(self, monitor: str, mode: Literal["min", "max"] = "max") -> None:
        super().__init__(
            monitor=monitor,
            mode=mode,
            filename="best",
            save_top_k=1,
            save_on_train_epoch_end=False,
            enable_version_counter=False,
        )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.dirpath = str(Path(trainer.default_root_dir) / CHECKPOINTS)
        super().setup(trainer, pl_module, stage)

    def _ModelCheckpoint__warn_if_dir_not_empty(self, dirpath: Any) -> None:
        """A run's own folder is not empty when it goes on; that is no news."""


class LastCheckpoint(ModelCheckpoint):
    """Keeps `checkpoints/last.ckpt`: where the run goes on after a stop.

    Args:
        every_n_steps: optimizer steps between saves; it is also saved at the end of every epoch.
    """

    def __init__(self, every_n_steps: int = 500) -> None:
        if every_n_steps < 1:
            raise ValueError(f"last_checkpoint.every_n_steps must be at least 1, got {every_n_steps}")
        super().__init__(
            filename="last", save_top_k=1, every_n_train_steps=every_n_steps, enable_version_counter=False
        )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.dirpath = str(Path(trainer.default_root_dir) / CHECKPOINTS)
        super().setup(trainer, pl_module, stage)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # After an epoch's last batch the validation is still to come; a save here would make a resumed run skip it.
        if trainer.is_last_batch:
            return
        if trainer.global_step == trainer.max_steps and not self._should_skip_saving_checkpoint(trainer):
            # The end of the run inside an epoch. At `on_train_epoch_end` Lightning would take the epoch for finished.
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
        else:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_last_batch and not self._should_skip_saving_checkpoint(trainer):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))

    def _ModelCheckpoint__warn_if_dir_not_empty(self, dirpath: Any) -> None:
        """A run's own folder is not empty when it goes on; that is no news."""
