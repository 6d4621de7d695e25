"""How fast a run is, and how much of its time it waits for data."""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class Throughput(Callback):
    """Logs `train/samples_per_second` (over all processes) and `train/data_wait` every `log_every_n_steps` steps.

    `train/data_wait` is the share of the time between two logs that the first process spent waiting for its loader.
    Validation is not counted, saving checkpoints is.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._reset(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._paused = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if hasattr(self, "_start"):
            self._start += time.perf_counter() - self._paused

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        steps = trainer.global_step - self._steps
        if steps < trainer.log_every_n_steps:
            return
        elapsed = time.perf_counter() - self._start
        plan = trainer.datamodule.plan  # type: ignore[attr-defined]
        pl_module.log_dict(
            {
                "train/samples_per_second": steps * plan.batch_size / elapsed,
                "train/data_wait": (trainer.train_dataloader.waited - self._waited) / elapsed,
            },
            batch_size=1,
        )
        self._reset(trainer)

    def _reset(self, trainer: Trainer) -> None:
        self._start, self._steps = time.perf_counter(), trainer.global_step
        self._waited = trainer.train_dataloader.waited
