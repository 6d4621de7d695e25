"""Ends a run whose folder is deleted or renamed while it trains."""

from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.distributed.errors import CollectiveError
from engine.lightning_internals.training_loop import is_last_micro_batch
from engine.module import as_lockstep_module
from engine.run_trainer import as_run_trainer

GONE_COUNTER = "run_folder_gone"
"""Step counter: 1 once rank 0 has found that the folder is gone."""

_KEPT = ("config.yaml", "metrics.jsonl", "train.log")
"""Files that exist since training began. A folder without any of them is not the run's, even if it has its name."""


class RunDirectoryGuard(Callback):
    """Ends all ranks of a training whose folder is no longer at its path.

    Files that are open follow a folder that is renamed, and vanish with a folder that is deleted, both without an
    error. Checkpoints would create the folder again, without config and logs. Rank 0 checks in the steps that are
    logged, before each validation and before each checkpoint.
    """

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._is_training = False
        as_lockstep_module(pl_module).counters.register(GONE_COUNTER)

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._is_training = not as_run_trainer(trainer).fast_dev_run

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        # At the end of the backward pass the counters are summed, so rank 0 checks before it.
        module = as_lockstep_module(pl_module)
        if module.is_log_step and is_last_micro_batch(trainer) and trainer.is_global_zero and self._is_gone(trainer):
            module.counters.add(GONE_COUNTER)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        module = as_lockstep_module(pl_module)
        if module.is_log_step and is_last_micro_batch(trainer) and module.counters.total(GONE_COUNTER):
            self._end(trainer)

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check(trainer)

    @override
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        self._check(trainer)

    def _check(self, trainer: Trainer) -> None:
        """Check now. A collective."""
        if self._is_training and trainer.strategy.broadcast(trainer.is_global_zero and self._is_gone(trainer)):
            self._end(trainer)

    def _is_gone(self, trainer: Trainer) -> bool:
        return self._is_training and is_gone(Path(trainer.default_root_dir))

    def _end(self, trainer: Trainer) -> None:
        self._is_training = False
        raise CollectiveError(
            f"{trainer.default_root_dir} was deleted, renamed or moved before step {trainer.global_step}, while the "
            "run was writing into it. If it still exists, move it back and resume with the same command and "
            "--ckpt_path last; if not, its config, logs and checkpoints are lost: start again with another --run_name"
        )


def is_gone(folder: Path) -> bool:
    """Return whether a run's folder is no longer at its path. A disk that does not answer does not prove that."""
    for name in _KEPT:
        try:
            (folder / name).stat()
            return False
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return False
    return True
