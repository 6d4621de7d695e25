"""Defines models of the tiny family with one defect each."""

import os
import threading
from pathlib import Path
from typing import Any

import torch

from engine.optim.global_loss_mean import LossSum
from tests.support.families.tiny_linear import Rows, TinyData, TinyModule
from tests.support.faults.memory_faults import TOO_MUCH


class OutOfMemory(TinyModule):
    def training_loss(self, batch: Rows) -> LossSum:
        raise torch.OutOfMemoryError("CUDA out of memory")


class NotFinite(TinyModule):
    def training_loss(self, batch: Rows) -> LossSum:
        loss = super().training_loss(batch)
        return loss._replace(total=loss.total * torch.nan)


class Wide(TinyModule):
    """A model with 24 MiB of weights and optimizer state."""

    def configure_model(self) -> None:
        super().configure_model()
        self.ballast = torch.nn.Parameter(torch.zeros(2**21))

    def training_loss(self, batch: Rows) -> LossSum:
        loss = super().training_loss(batch)
        return loss._replace(total=loss.total + self.ballast.sum() * 0)


class Hungry(TinyModule):
    """Runs out of memory for more than `most` samples."""

    def __init__(self, most: int = 2, **training: Any) -> None:
        super().__init__(**training)
        self.most = most

    def training_loss(self, batch: Rows) -> LossSum:
        if len(batch.samples) > self.most:
            torch.empty(TOO_MUCH)
        return super().training_loss(batch)


class HungryWhole(Hungry):
    """A model whose batch cannot be divided."""

    supports_grad_accumulation = False

    def memory_saving_options(self) -> list[tuple[str, str]]:
        return [("--model.init_args.most 1000", "")]


class Greedy(TinyModule):
    """Takes 50 MB a sample, in a control group.

    Args:
        group: its folder, made by the test, with a limit.
    """

    def __init__(self, group: str, **training: Any) -> None:
        super().__init__(**training)
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))

    def training_loss(self, batch: Rows) -> LossSum:
        taken = [torch.ones(50 << 20, dtype=torch.uint8) for _ in batch.samples]
        loss = super().training_loss(batch)
        return loss._replace(total=loss.total + 0 * len(taken))


class Unmade(TinyModule):
    def configure_model(self) -> None:
        raise ValueError("64 channels do not split over 3 heads")


class Endless(TinyModule):
    """A step that takes until the test has seen enough."""

    began, go_on = threading.Event(), threading.Event()

    def training_loss(self, batch: Rows) -> LossSum:
        self.began.set()
        self.go_on.wait(120)
        return super().training_loss(batch)


class Gone(TinyData):
    def setup(self, stage: str) -> None:
        raise FileNotFoundError("shard 3 is gone")
