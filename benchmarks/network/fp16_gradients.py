"""Sends gradients in fp16 on a CPU, to measure their time only."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from engine.distributed.ddp_comm_hook import compress_gradients


class Fp16Gradients(Callback):
    """Does what `ddp.compression fp16` does, without the loss scale that it requires, which CPUs do not have.

    Small gradients become 0.
    """

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ddp = trainer.strategy.model
        assert isinstance(ddp, DistributedDataParallel), "a training of a single process"
        compress_gradients(ddp, torch.float16)
