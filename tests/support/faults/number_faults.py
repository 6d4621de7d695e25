"""Injects wrong numbers at a step on a rank: losses, gradients and weights, and parameters without a gradient."""

import math
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from engine.optim.global_loss_mean import LossSum
from tests.support.faults.step_faults import At, fault


class RootOfZeroAt(At):
    """The loss stays what it is; its gradient is 0 x infinity."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        change_next_loss(pl_module, lambda total: total + (total * 0).sqrt() * 0)


class NonFiniteLoss(Callback):
    """The loss is NaN (or `value`) on one process (-1: on all) in the steps after so many are finished."""

    def __init__(self, steps: list[int], process: int = -1, value: float = math.nan) -> None:
        self.steps, self.process, self.value = steps, process, value

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step in self.steps and self.process in (trainer.global_rank, -1):
            change_next_loss(pl_module, lambda total: total * self.value)


class NonFiniteSample(Callback):
    """The loss of a micro-batch that holds the sample is NaN, in every epoch, on the rank that has the sample."""

    def __init__(self, sample: int) -> None:
        self.sample = sample

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        micro_batches = trainer.datamodule.samples_of_step(trainer.global_rank)
        if self.sample in micro_batches[batch_idx % trainer.accumulate_grad_batches]:
            change_next_loss(pl_module, lambda total: total * math.nan)


class InfiniteGradientAt(At):
    """The loss is finite, the gradient of the last parameter is infinite, or `value`."""

    def __init__(self, step: int, process: int = 0, value: float = math.inf) -> None:
        super().__init__(step, process)
        self.value = value

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        *_, last = pl_module.parameters()

        def overflow(gradient: Tensor) -> Tensor:
            hook.remove()
            return gradient + self.value

        hook = last.register_hook(overflow)


class UlpAt(At):
    """One weight becomes the next larger floating-point number."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        *_, last = pl_module.parameters()
        with torch.no_grad():
            last.view(-1)[0] = torch.nextafter(last.view(-1)[0], torch.tensor(math.inf))


class SideBranch(Callback):
    """The model has a branch that takes no part in the loss on one process (-1: on all), after so many steps."""

    def __init__(self, unused_on: int = -1, frozen: bool = False, after: int = 0) -> None:
        self.unused_on, self.frozen, self.after = unused_on, frozen, after

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        pl_module.branch = torch.nn.Linear(4, 1).requires_grad_(not self.frozen)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.unused_on not in (trainer.global_rank, -1) or trainer.global_step < self.after:
            change_next_loss(pl_module, lambda total: total + pl_module.branch(torch.ones(1, 4)).sum())


def change_next_loss(pl_module: LightningModule, change: Callable[[Tensor], Tensor]) -> None:
    """Change the loss of the next micro-batch only."""

    def changed(batch: Any) -> LossSum:
        del pl_module.training_loss  # the class's own is back
        loss = pl_module.training_loss(batch)
        return loss._replace(total=change(loss.total))

    pl_module.training_loss = changed


def number_fault(kind: str, **settings: Any) -> list[str]:
    """The options that add a fault of this module to a run: ``number_fault("UlpAt", step=3, process=1)``."""
    return fault(kind, __name__, **settings)
