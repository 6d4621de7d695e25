"""Keeps the last checkpoint, from which a run resumes after a stop."""

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from typing_extensions import override

from callbacks.checkpointing.rotating_checkpoint import RotatingCheckpoint
from engine.checkpointing.discovery import list_checkpoints, saved_at
from engine.lightning_internals.training_loop import is_last_micro_batch, stops_early, validation_follows
from engine.number_check import check_numbers
from engine.run_trainer import as_run_trainer


class LastCheckpoint(RotatingCheckpoint):
    """Keeps `checkpoints/last.ckpt`, from which the run resumes after a stop.

    Args:
        every_n_steps: optimizer steps between saves; it is also saved at the end of every epoch.
        keep: number of files to keep: last.ckpt and, in case it gets corrupt, last-1.ckpt, last-2.ckpt, ...
        keep_every_n_steps: optimizer steps between checkpoints that are kept indefinitely, as step-1000.ckpt,
            step-2000.ckpt, ...; null for none.
    """

    def __init__(self, every_n_steps: int = 500, keep: int = 2, keep_every_n_steps: int | None = None) -> None:
        super().__init__("last_checkpoint", "last", keep)
        steps = {"every_n_steps": every_n_steps, "keep_every_n_steps": keep_every_n_steps}
        check_numbers("last_checkpoint.", steps, at_least=1)
        self.every_n_steps, self.keep_every_n_steps = every_n_steps, keep_every_n_steps
        self._saved_step = 0  # before the first step there is nothing to save
        self._after_validation = False
        self._has_started = False

    def _file_name(self, index: int) -> str:
        return f"last-{index}.ckpt" if index else "last.ckpt"

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # A checkpoint of plain Lightning has no `saved_at`.
        if trainer.state.fn == "fit" and "saved_at" in checkpoint:
            self.io.record_resumed(checkpoint["saved_at"])

    @override
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        checkpoint["saved_at"] = self.io.next_timestamp()

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # The resumed step is on the disk already.
        self._saved_step, self._has_started = trainer.global_step, True
        if trainer.is_global_zero:
            for path in list_checkpoints(Path(trainer.default_root_dir)):
                self.io.require_later_than(saved_at(path))
        if self._resumes_from_another(trainer):
            # last.ckpt was skipped and may be corrupt, so rotation must not move it over a good checkpoint.
            self.io.replace_next(self.files[0])
            self._saved_step = -1  # last.ckpt is of no step of this start

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        # After an epoch's last batch a validation may follow. A checkpoint saved here would make a resumed run skip it.
        if self.is_disabled(trainer) or trainer.is_last_batch or not is_last_micro_batch(trainer):
            return
        step = trainer.global_step
        # A run that ends within an epoch is saved here: in `on_train_epoch_end` Lightning counts the epoch as finished.
        is_end = step == trainer.max_steps or stops_early(trainer)
        is_due = step % self.every_n_steps == 0 or self._is_kept(step)
        if step != self._saved_step and (is_end or is_due):
            self._after_validation = validation_follows(trainer)
            # Saved after a validation that follows, so that a resumed run neither skips nor repeats it.
            if not self._after_validation:
                self._save(trainer)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.is_disabled(trainer):
            return
        # Early stopping may have ended the run in this validation, within the epoch.
        is_within_epoch = not trainer.is_last_batch and is_last_micro_batch(trainer)
        is_end = is_within_epoch and stops_early(trainer) and trainer.global_step != self._saved_step
        if self._after_validation or is_end:
            self._after_validation = False
            self._save(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # `max_steps` may end an epoch before its last batch; `on_train_batch_end` has saved then.
        if trainer.is_last_batch and not self.is_disabled(trainer) and trainer.global_step != self._saved_step:
            self._save(trainer)

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A run killed between its last two saves, best.ckpt and last.ckpt, resumes from best.ckpt with nothing to do.
        if not self._has_started and not self.is_disabled(trainer) and self._resumes_from_another(trainer):
            self.io.replace_next(self.files[0])
            self.save_and_wait(trainer)

    def _resumes_from_another(self, trainer: Trainer) -> bool:
        return trainer.ckpt_path is not None and Path(trainer.ckpt_path).absolute() != self.files[0].absolute()

    def save_and_wait(self, trainer: Trainer) -> None:
        """Save last.ckpt and wait until it is on the disk. Call it on all ranks at the same step.

        Raises:
            CollectiveError: the checkpoint could not be written. Raised on all ranks.
        """
        if trainer.global_step == self._saved_step:
            self.io.replace_next(self.files[0])  # last-1.ckpt should be of another step
        self._save(trainer)
        self.io.sync_outcomes(trainer.strategy, last=True)

    def _is_kept(self, step: int) -> bool:
        return self.keep_every_n_steps is not None and step > 0 and step % self.keep_every_n_steps == 0

    @override
    def _save(self, trainer: Trainer, index: int = 0) -> None:
        step, path = trainer.global_step, self.files[index]
        self.io.keep_next(path, path.with_name(f"step-{step}.ckpt") if self._is_kept(step) else None)
        super()._save(trainer, index)
        self._saved_step = trainer.global_step


def save_last(trainer: Trainer) -> None:
    """Save last.ckpt, if the run has one, and wait until it is on the disk. Call it on all ranks at the same step.

    Raises:
        CollectiveError: the checkpoint could not be written. Raised on all ranks.
    """
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, LastCheckpoint) and not as_run_trainer(trainer).fast_dev_run:
            callback.save_and_wait(trainer)
