"""Makes ranks measure different speeds with one thread and with several."""

import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.performance import cpu_threads, thread_timing
from engine.optim.global_loss_mean import LossSum


class UnevenThreads(Callback):
    """Two cores for each process; the first is slow with one thread, the second slower with two.

    Writes the number of threads that each process trains with into the run's folder.
    """

    def __init__(self) -> None:
        cpu_threads.available_cpus, thread_timing._MIN_SECONDS = lambda: 4.0, 0.02

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        compute, slow = pl_module.training_loss, {(0, 1): 0.2, (1, 2): 0.6}

        def training_loss(batch: Any) -> LossSum:
            time.sleep(slow.get((trainer.global_rank, torch.get_num_threads()), 0.0))
            return compute(batch)

        pl_module.training_loss = training_loss

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        path = Path(trainer.default_root_dir) / f"threads-{trainer.global_rank}"
        path.write_text(str(torch.get_num_threads()))
