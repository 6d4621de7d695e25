"""Gradients in fp16 on a CPU, to measure their time only."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.distributed.ddp_comm_hook import compress_gradients


class SentAsFp16(Callback):
    """Does what `ddp.compression fp16` does, without the loss scale that it requires, which CPUs do not have.

    Small gradients become 0.
    """

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        compress_gradients(trainer.strategy.model, torch.float16)
