"""Two independent checkpoints of a run: the best by a validation metric, and the last.

Lightning ties `save_last` to the best: when the metric stops improving, the last checkpoint gets old as well. Here
each is a callback of its own (`callbacks.best_checkpoint`, `callbacks.last_checkpoint`), so a run that is killed goes
on from where it was. Both keep a row of files (`engine.retention`), and what happens when a file cannot be written is
agreed by all processes (`engine.checkpoints`).
"""

import logging
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from engine.checkpoint_file import CHECKPOINTS
from engine.checkpoints import DurableCheckpointIO
from engine.durable_file import remove, remove_leftovers

log = logging.getLogger("lockstep")


class CheckpointRow(Checkpoint):
    """Saves into a row of files, of which the first is the one that counts."""

    def __init__(self, option: str, stem: str, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"{option}.keep must be at least 1, got {keep}")
        self.stem, self.keep = stem, keep

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if not isinstance(trainer.strategy.checkpoint_io, DurableCheckpointIO):
            trainer.strategy.checkpoint_io = DurableCheckpointIO()
        self.io = trainer.strategy.checkpoint_io
        folder = Path(trainer.default_root_dir) / CHECKPOINTS
        self.row = [folder / self._name(place) for place in range(self.keep)]
        self.io.keep(self.row)
        if trainer.is_global_zero:
            for name in remove_leftovers(folder):
                log.info("removed %s, which a process that was killed has left", name)

    def _name(self, place: int) -> str:
        raise NotImplementedError

    def off(self, trainer: Trainer) -> bool:
        """Whether nothing is to be saved now: in a trial run, a sanity check, an evaluation."""
        return bool(trainer.fast_dev_run) or trainer.state.fn != "fit" or trainer.sanity_checking

    def _save(self, trainer: Trainer, place: int = 0) -> None:
        trainer.save_checkpoint(self.row[place], weights_only=False)
        self.io.agree(trainer.strategy)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.off(trainer):
            return
        self.io.agree(trainer.strategy, last=True)
        if trainer.is_global_zero and self.row[0].exists():
            self._remove_surplus()

    def _remove_surplus(self) -> None:
        """What an earlier start of the run kept, when it was to keep more."""
        for path in self.row[0].parent.glob(f"{self.stem}-*.ckpt"):
            if path not in self.row and path.stem.removeprefix(f"{self.stem}-").isdigit():
                remove(path)
