"""Faults addressed by step and process, as callbacks: `--trainer.callbacks+=tests.distributed.faults.SignalAt ...`."""

import math
import os
import signal
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from engine.exact_mean import LossSum


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


class NonFiniteLoss(Callback):
    """The loss is NaN (or `value`) on one process (-1: on all) in the steps after so many are finished."""

    def __init__(self, steps: list[int], process: int = -1, value: float = math.nan) -> None:
        self.steps, self.process, self.value = steps, process, value

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step in self.steps and self.process in (trainer.global_rank, -1):
            change_next_loss(pl_module, lambda total: total * self.value)


class NonFiniteSample(Callback):
    """The loss of a micro-batch that holds the sample is NaN, in every epoch, on whichever process the sample lies."""

    def __init__(self, sample: int) -> None:
        self.sample = sample

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        micro_batches = trainer.datamodule.samples_of_step(trainer.global_rank)
        if self.sample in micro_batches[batch_idx % trainer.accumulate_grad_batches]:
            change_next_loss(pl_module, lambda total: total * math.nan)


class InfiniteGradientAt(At):
    """The loss is finite, the gradient of the last parameter is infinite."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        *_, last = pl_module.parameters()

        def overflow(gradient: Tensor) -> Tensor:
            hook.remove()
            return gradient + math.inf

        hook = last.register_hook(overflow)


class UlpAt(At):
    """One weight becomes the next larger floating-point number."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        *_, last = pl_module.parameters()
        with torch.no_grad():
            last.view(-1)[0] = torch.nextafter(last.view(-1)[0], torch.tensor(math.inf))


class SideBranch(Callback):
    """The model has a branch that takes no part in the loss on one process (-1: on all)."""

    def __init__(self, unused_on: int = -1, frozen: bool = False) -> None:
        self.unused_on, self.frozen = unused_on, frozen

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        pl_module.branch = torch.nn.Linear(4, 1).requires_grad_(not self.frozen)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.unused_on not in (trainer.global_rank, -1):
            change_next_loss(pl_module, lambda total: total + pl_module.branch(torch.ones(1, 4)).sum())


class Without(Callback):
    """The run has no callback of that class: what Lightning does by itself."""

    def __init__(self, callback: str) -> None:
        self.callback = callback

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        trainer.callbacks = [one for one in trainer.callbacks if type(one).__name__ != self.callback]


def change_next_loss(pl_module: LightningModule, change: Callable[[Tensor], Tensor]) -> None:
    """Of the next micro-batch alone."""

    def changed(batch: Any) -> LossSum:
        del pl_module.training_loss  # the class's own is back
        loss = pl_module.training_loss(batch)
        return loss._replace(total=change(loss.total))

    pl_module.training_loss = changed


def fault(kind: str, **settings: Any) -> list[str]:
    """The options that add a fault to a run: ``fault("SignalAt", name="SIGKILL", step=3, process=1)``."""
    options = [f"--trainer.callbacks+=tests.distributed.faults.{kind}"]
    return options + [f"--trainer.callbacks.{key}={value}" for key, value in settings.items()]
