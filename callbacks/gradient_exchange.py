"""How the processes of DDP exchange their gradients: in how many bits, in which portions, with how much care."""

import logging
import math
from typing import Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.precision import HalfPrecision
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy
from torch.nn.parallel import DistributedDataParallel

from engine.gradient_mean import send_as
from engine.static_graph import StaticGraph

log = logging.getLogger("lockstep")

_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class GradientExchange(Callback):
    """Settings of the all-reduce that makes one gradient of those of all processes. One process has none, and they
    then change nothing; strategies other than DDP have their own way, and they are refused.

    Args:
        compression: send gradients in 16 bits, half the bytes of float32, and round them for it: training is then no longer the same on any number of processes to the last digits, but the replicas stay equal to the bit. `bf16` has float32's range and 8 bits of precision; `fp16` has 11 bits in a narrow range, which takes the loss scale of `trainer.precision 16-mixed`. Worth it where the network is slower than the backward pass.
        bucket_mb: MiB of gradients in a message, also in the first of a step (DDP's own: 1 in the first, 25 in the others). Larger: fewer, larger messages, for networks with a long delay; smaller: sending starts earlier, but earlier than by DDP's own only below 1. Changes nothing beyond rounding.
        static_graph: promise that every step uses the same parameters in the same way; a step that does not ends the run before the weights are changed. DDP finds out in the first step which those are, allows for some without a gradient, and no longer looks. Needed where a parameter is used several times under reentrant activation checkpointing.
    """  # noqa: E501

    def __init__(
        self,
        compression: Literal["bf16", "fp16"] | None = None,
        bucket_mb: float | None = None,
        static_graph: bool = False,
    ) -> None:
        if bucket_mb is not None and not 0 < bucket_mb < math.inf:
            raise ValueError(f"gradients.bucket_mb must be more than 0 and finite, got {bucket_mb}")
        self.compression, self.bucket_mb, self.static_graph = compression, bucket_mb, static_graph
        self._watched: StaticGraph | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        options = {"bucket_cap_mb": self.bucket_mb, "static_graph": self.static_graph or None}
        options = {name: value for name, value in options.items() if value is not None}
        if stage != "fit" or not (options or self.compression):
            return
        strategy = trainer.strategy
        if trainer.world_size == 1:
            log.info("gradients: one process has nobody to exchange them with, so the settings change nothing")
            return
        if not isinstance(strategy, DDPStrategy) or isinstance(strategy, DeepSpeedStrategy):
            raise ValueError(_other_strategy(trainer))
        # A class in the config says all of DDP's settings, None or False if the user does not; a fit before, the same.
        said = {**strategy._ddp_kwargs, "ddp_comm_hook": strategy._ddp_comm_hook}
        wanted = options | ({"ddp_comm_hook": self.compression} if self.compression else {})
        twice = {name for name, value in wanted.items() if said.get(name) not in (None, False, value)}
        if twice:
            both = ", ".join(f"{name} ({wanted[name]} and {said[name]})" for name in sorted(twice))
            raise ValueError(f"said twice, by gradients and by trainer.strategy: {both}: leave one out")
        if self.compression:
            self._refuse_precision(trainer)
        strategy._ddp_kwargs.update(options)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ddp = trainer.strategy.model
        if trainer.world_size == 1 or not isinstance(ddp, DistributedDataParallel):
            return
        if self.compression:
            sent_as = _FORMATS[self.compression]
            send_as(ddp, sent_as)
            trained = [parameter for parameter in ddp.parameters() if parameter.requires_grad]
            whole = sum(parameter.numel() * parameter.element_size() for parameter in trained)
            sent = sum(parameter.numel() * sent_as.itemsize for parameter in trained)
            log.info("gradients: %s bytes a step are sent as %s of %s", f"{whole:,}", f"{sent:,}", self.compression)
        if ddp.static_graph:
            self._watched = StaticGraph(ddp)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._watched is not None:
            self._watched.after_backward(exchanged=not trainer.fit_loop.epoch_loop._should_accumulate())

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._watched is not None:
            self._watched.close()
            self._watched = None

    def _refuse_precision(self, trainer: Trainer) -> None:
        precision = trainer.precision_plugin
        if isinstance(precision, HalfPrecision):
            raise ValueError(
                f"gradients.compression {self.compression}: with trainer.precision {precision.precision} the gradients "
                "have 16 bits already; leave it out"
            )
        if self.compression == "fp16" and getattr(precision, "scaler", None) is None:
            raise ValueError(
                "gradients.compression fp16 takes the loss scale of trainer.precision 16-mixed, which keeps gradients "
                f"in its range: with {precision.precision} small ones become 0 without a word. Use bf16"
            )


def _other_strategy(trainer: Trainer) -> str:
    name = type(trainer.strategy).__name__
    if isinstance(trainer.strategy, FSDPStrategy):
        return (
            f"gradients.* are settings of DDP, and trainer.strategy is {name}: FSDP sends gradients in the format of "
            "trainer.precision (bf16-mixed: 16 bits), layer by layer. Leave them out"
        )
    return f"gradients.* are settings of DDP, and trainer.strategy is {name}: leave them out, or use strategy ddp"
