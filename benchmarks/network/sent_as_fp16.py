"""Gradients in fp16 on a CPU, for their time alone."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from engine.gradient_mean import send_as


class SentAsFp16(Callback):
    """What `gradients.compression fp16` does, without the loss scale that it insists on and no CPU has: small gradients
    become 0."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        send_as(trainer.strategy.model, torch.float16)
