"""The last checkpoint, from which a run goes on after a stop."""

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from callbacks.checkpoint_row import CheckpointRow
from engine.checkpoint_file import candidates, saved_at


class LastCheckpoint(CheckpointRow):
    """Keeps `checkpoints/last.ckpt`: where the run goes on after a stop.

    Args:
        every_n_steps: optimizer steps between saves; it is also saved at the end of every epoch.
        keep: how many to keep: last.ckpt and, in case it gets damaged, those before it: last-1.ckpt, last-2.ckpt, ...
    """

    def __init__(self, every_n_steps: int = 500, keep: int = 2) -> None:
        super().__init__("last_checkpoint", "last", keep)
        if every_n_steps < 1:
            raise ValueError(f"last_checkpoint.every_n_steps must be at least 1, got {every_n_steps}")
        self.every_n_steps = every_n_steps
        self._saved_step = 0  # nothing is worth saving before the first step
        self._after_validation = False

    def _name(self, place: int) -> str:
        return f"last-{place}.ckpt" if place else "last.ckpt"

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit" and "saved_at" in checkpoint:
            self.io.goes_on_from(checkpoint["saved_at"])

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["saved_at"] = self.io.stamp()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_step = trainer.global_step
        if trainer.is_global_zero:
            for path in candidates(Path(trainer.default_root_dir)):
                self.io.saves_after(saved_at(path))
        if trainer.ckpt_path is not None and Path(trainer.ckpt_path).absolute() != self.row[0].absolute():
            # last.ckpt was passed over, perhaps because it is damaged: it must not move on to where a good one is.
            self.io.replace_next(self.row[0])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # After an epoch's last batch the validation is still to come; a save here would make a resumed run skip it.
        if self.off(trainer) or trainer.is_last_batch or trainer.fit_loop.epoch_loop._should_accumulate():
            return
        step = trainer.global_step
        # The end of the run inside an epoch. At `on_train_epoch_end` Lightning would take the epoch for finished.
        ends = step == trainer.max_steps or _told_to_stop(trainer)
        if step != self._saved_step and (ends or step % self.every_n_steps == 0):
            self._after_validation = trainer.fit_loop.epoch_loop._should_check_val_fx(trainer.fit_loop._data_fetcher)
            if not self._after_validation:
                self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.off(trainer):
            return
        # Early stopping may have decided in this very validation that the run ends inside the epoch.
        inside = not trainer.is_last_batch and not trainer.fit_loop.epoch_loop._should_accumulate()
        ends = inside and _told_to_stop(trainer) and trainer.global_step != self._saved_step
        if self._after_validation or ends:
            self._after_validation = False
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_last_batch and not self.off(trainer) and trainer.global_step != self._saved_step:
            self._save(trainer)

    def save_now(self, trainer: Trainer) -> None:
        """Saves last.ckpt at once and returns when it is on the disk; entered by all processes at the same step.

        Raises:
            AgreedFailure: on all processes, when it could not be written.
        """
        if trainer.global_step == self._saved_step:
            self.io.replace_next(self.row[0])  # the one before it should be of another step
        self._save(trainer)
        self.io.agree(trainer.strategy, last=True)

    def _save(self, trainer: Trainer, place: int = 0) -> None:
        super()._save(trainer, place)
        self._saved_step = trainer.global_step


def _told_to_stop(trainer: Trainer) -> bool:
    return bool(trainer.should_stop and trainer.fit_loop._can_stop_early)
