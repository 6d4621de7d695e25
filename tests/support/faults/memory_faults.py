"""Injects out-of-memory errors in a phase of the step on a rank. The allocator itself raises them."""

import os
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.performance import auto_micro_batch
from engine.optim.global_loss_mean import LossSum
from tests.support.faults.number_faults import change_next_loss
from tests.support.faults.step_faults import At, fault

TOO_MUCH = 1 << 58
"""Numbers that no machine has room for."""


class ExhaustAt(At):
    """`phase`: forward (also in an attempt before training), backward or step."""

    def __init__(self, phase: str, step: int, process: int = -1) -> None:
        super().__init__(step, process)
        self.phase = phase

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.phase == "forward":
            change_next_loss(pl_module, lambda total: total + torch.empty(TOO_MUCH).sum())
        elif self.phase == "backward":
            change_next_loss(pl_module, _exhausted_backward)
        else:
            (optimizer,) = trainer.optimizers
            optimizer._init_group = lambda *_: torch.empty(TOO_MUCH)


class Hungry(Callback):
    """The loss runs out of memory for more than `most` samples, on one process (-1: on all)."""

    def __init__(self, most: int, process: int = -1, like_gpu: bool = False) -> None:
        self.most, self.process = most, process
        if like_gpu:  # a trial may run: the error looks like the error of a GPU's allocator
            auto_micro_batch.reports_oom = lambda device: True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.process not in (trainer.global_rank, -1):
            return
        training_loss = pl_module.training_loss

        def hungry(batch: Any) -> LossSum:
            if sum(len(part.targets) for part in batch) > self.most:
                torch.empty(TOO_MUCH)
            return training_loss(batch)

        pl_module.training_loss = hungry


class Leak(Callback):
    """Leaks 16 MB in every step."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.kept.append(torch.ones(1 << 22))


class KilledFor(At):
    """The process takes memory without end in a control group of its own, and the kernel kills it.

    Args:
        group: its folder, made by the test, with a limit.
    """

    def __init__(self, group: str, step: int, process: int = 1) -> None:
        super().__init__(step, process)
        self.group = Path(group)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        taken = []
        while True:
            taken.append(torch.ones(1 << 22))


def _exhausted_backward(total: Tensor) -> Tensor:
    total.register_hook(lambda gradient: gradient + torch.empty(TOO_MUCH).sum())
    return total


def memory_fault(kind: str, **settings: Any) -> list[str]:
    """Return the options that inject a fault of this file, see `fault`."""
    return fault(kind, __name__, **settings)
