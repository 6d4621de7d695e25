"""Faults addressed by step and process, as callbacks: `--trainer.callbacks+=tests.distributed.faults.SignalAt ...`."""

import os
import signal
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class At(Callback):
    """Something that happens on one process (-1: on all) after `step` optimizer steps are finished, once."""

    def __init__(self, step: int, process: int = 0) -> None:
        self.step, self.process, self.done = step, process, False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.step and not self.done and self.process in (trainer.global_rank, -1):
            self.done = True
            self.happen(trainer, pl_module)

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise NotImplementedError


class SignalAt(At):
    """The process gets a signal: SIGKILL, SIGSTOP, SIGTERM, SIGINT, SIGUSR1."""

    def __init__(self, name: str, step: int, process: int = 0) -> None:
        super().__init__(step, process)
        self.name = name

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        os.kill(os.getpid(), signal.Signals[self.name])


class RaiseAt(At):
    """The process raises an error."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise RuntimeError(f"injected on process {self.process}")


def fault(kind: str, **settings: Any) -> list[str]:
    """The options that add a fault to a run: ``fault("SignalAt", name="SIGKILL", step=3, process=1)``."""
    options = [f"--trainer.callbacks+=tests.distributed.faults.{kind}"]
    return options + [f"--trainer.callbacks.{key}={value}" for key, value in settings.items()]
