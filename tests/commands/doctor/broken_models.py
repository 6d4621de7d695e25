"""Models of the tiny family with which something is wrong."""

import torch

from engine.exact_mean import LossSum
from tests.distributed.tiny import Rows, TinyModule


class OutOfMemory(TinyModule):
    def training_loss(self, batch: Rows) -> LossSum:
        raise torch.OutOfMemoryError("CUDA out of memory")


class NotFinite(TinyModule):
    def training_loss(self, batch: Rows) -> LossSum:
        loss = super().training_loss(batch)
        return loss._replace(total=loss.total * torch.nan)


class Wide(TinyModule):
    """With 24 MiB of weights and optimizer state."""

    def configure_model(self) -> None:
        super().configure_model()
        self.ballast = torch.nn.Parameter(torch.zeros(2**21))

    def training_loss(self, batch: Rows) -> LossSum:
        loss = super().training_loss(batch)
        return loss._replace(total=loss.total + self.ballast.sum() * 0)
