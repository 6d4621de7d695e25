"""Simulates a device whose memory runs out for micro-batches above a size. Its own allocator raises the error."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.performance import auto_micro_batch
from engine.optim.global_loss_mean import LossSum
from tests.support.faults.memory_faults import TOO_MUCH

_LIMIT = 4 << 30
"""Bytes that a process may take of a GPU."""


class LimitedMemory(Callback):
    """The loss of `most` samples fits into the memory, the loss of twice as many does not.

    A GPU's process gets 4 GiB, of which the loss of `most` samples takes three quarters. A CPU has no such limit, so
    its allocator is asked for more than any machine has.

    Args:
        most: samples of the largest micro-batch that fits.
    """

    def __init__(self, most: int) -> None:
        self.most = most

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        device = trainer.strategy.root_device
        training_loss = pl_module.training_loss
        if device.type == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, _LIMIT / total), device)
        else:
            auto_micro_batch.reports_oom = lambda device: True  # what a trial does on a GPU

        def hungry(batch: Any) -> LossSum:
            loss: LossSum = training_loss(batch)
            samples = sum(len(part.targets) for part in batch)
            if device.type == "cuda":
                taken = torch.empty(_LIMIT * 3 // 4 * samples // self.most, dtype=torch.uint8, device=device)
                assert taken.is_cuda
            elif samples > self.most:
                torch.empty(TOO_MUCH)
            return loss

        pl_module.training_loss = hungry


def limited_memory(most: int) -> list[str]:
    """Return the options that limit the memory of a recommender's training."""
    return [f"--trainer.callbacks+={__name__}.LimitedMemory", f"--trainer.callbacks.most={most}"]
