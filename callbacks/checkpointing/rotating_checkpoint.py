"""Rotates and saves the two checkpoints of a run: the best by a validation metric, and the last.

Lightning ties `save_last` to the best: when the metric stops improving, the last checkpoint becomes stale. Here each is
a callback of its own (`best_checkpoint.py`, `last_checkpoint.py`), so a killed run resumes from its last step. Both
rotate their files (`engine.checkpointing.rotation`), and all ranks agree on the outcome of a write
(`engine.checkpointing.checkpoint_io`).
"""

import logging
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.discovery import CHECKPOINTS
from engine.io.atomic_file import remove, remove_leftovers
from engine.number_check import check_number
from engine.run_trainer import as_run_trainer

log = logging.getLogger("lockstep")


class RotatingCheckpoint(Checkpoint):
    """Base of checkpoint callbacks that keep several files, of which the first is the newest or best.

    Args:
        option: name of the callback on the command line, for messages.
        stem: name of the first file without its suffix.
        keep: number of files.
    """

    def __init__(self, option: str, stem: str, keep: int) -> None:
        check_number(f"{option}.keep", keep, at_least=1)
        self.stem, self.keep = stem, keep

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        # The command line sets the plugin. A Trainer that is created in Python has Lightning's.
        if not isinstance(trainer.strategy.checkpoint_io, VerifiedCheckpointIO):
            trainer.strategy.checkpoint_io = VerifiedCheckpointIO()
        self.io = trainer.strategy.checkpoint_io
        folder = Path(trainer.default_root_dir) / CHECKPOINTS
        self.files = [folder / self._file_name(index) for index in range(self.keep)]
        self.io.set_rotation(self.files)
        if trainer.is_global_zero:
            # All ranks share the folder, so rank 0 alone cleans it.
            for name in remove_leftovers(folder):
                log.info("removed %s, a temporary file of a killed process", name)

    def _file_name(self, index: int) -> str:
        raise NotImplementedError

    def is_disabled(self, trainer: Trainer) -> bool:
        """Return whether nothing is saved now: in a fast_dev_run, a sanity check or an evaluation."""
        return bool(as_run_trainer(trainer).fast_dev_run) or trainer.state.fn != "fit" or trainer.sanity_checking

    def _save(self, trainer: Trainer, index: int = 0) -> None:
        # `weights_only` False: the optimizer's state and the position in the data belong to a resume.
        trainer.save_checkpoint(self.files[index], weights_only=False)
        self.io.sync_outcomes(trainer.strategy)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.is_disabled(trainer):
            return
        # No save follows that could succeed instead, so a single failure ends the run now.
        self.io.sync_outcomes(trainer.strategy, last=True)
        if trainer.is_global_zero and self.files[0].exists():
            self._remove_surplus()

    def _remove_surplus(self) -> None:
        """Remove files of an earlier start of the run that had a larger `keep`."""
        for path in self.files[0].parent.glob(f"{self.stem}-*.ckpt"):
            if path not in self.files and path.stem.removeprefix(f"{self.stem}-").isdigit():
                remove(path)
