"""Sets the number format and the bucket size in which DDP sends gradients."""

import logging
from typing import Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.precision import HalfPrecision
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from engine.distributed.ddp_comm_hook import compress_gradients
from engine.number_check import check_number
from engine.strategies.fsdp import has_sharded_weights

log = logging.getLogger("lockstep")

_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class DDPOptions(Callback):
    """Settings of the all-reduce that averages the gradients over the ranks.

    They have no effect with one rank and are refused with strategies other than DDP.

    Args:
        compression: send gradients in 16 bits, half the bytes of float32. Gradients are rounded, so training is no
            longer the same on any number of processes to the last digits; the replicas stay equal to the bit. `bf16`
            has the range of float32 and 8 bits of precision. `fp16` has 11 bits in a narrow range and needs the loss
            scale of `trainer.precision 16-mixed`. Useful where the network is slower than the backward pass.
        bucket_mb: size of DDP's buckets in MiB, also of the first bucket (DDP's defaults: 1 for the first, 25 for the
            rest). Larger buckets are fewer messages, for networks with high latency. Smaller buckets are sent earlier,
            but only below 1 earlier than with DDP's defaults. Changes nothing beyond rounding.
    """

    def __init__(self, compression: Literal["bf16", "fp16"] | None = None, bucket_mb: float | None = None) -> None:
        check_number("ddp.bucket_mb", bucket_mb, above=0)
        self.compression, self.bucket_mb = compression, bucket_mb

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit" or not (self.bucket_mb or self.compression):
            return
        strategy = trainer.strategy
        if trainer.world_size == 1:
            log.info("ddp: the settings have no effect with one rank")
            return
        # DeepSpeedStrategy extends DDPStrategy, but does not wrap the module in DDP.
        if not isinstance(strategy, DDPStrategy) or isinstance(strategy, DeepSpeedStrategy):
            raise ValueError(_other_strategy(trainer))
        if self.compression:
            self._check_precision(trainer)

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Lightning wraps the module after the setup hooks, so the wrapper exists only now.
        ddp = trainer.strategy.model
        if trainer.world_size == 1 or not isinstance(ddp, DistributedDataParallel):
            return
        if self.bucket_mb is not None and ddp.bucket_bytes_cap != int(self.bucket_mb * 2**20):
            # commands.cli.ddp_settings passes it to the strategy; a Trainer that is created in Python does not.
            raise ValueError(f"ddp.bucket_mb {self.bucket_mb}: give DDPStrategy bucket_cap_mb={self.bucket_mb}")
        if self.compression:
            sent_as = _FORMATS[self.compression]
            compress_gradients(ddp, sent_as)
            trained = [parameter for parameter in ddp.parameters() if parameter.requires_grad]
            full = sum(parameter.numel() * parameter.element_size() for parameter in trained)
            sent = sum(parameter.numel() * sent_as.itemsize for parameter in trained)
            log.info("gradients: %s bytes a step are sent as %s of %s", f"{full:,}", f"{sent:,}", self.compression)

    def _check_precision(self, trainer: Trainer) -> None:
        precision = trainer.precision_plugin
        if isinstance(precision, HalfPrecision):
            raise ValueError(
                f"ddp.compression {self.compression}: with trainer.precision {precision.precision} gradients "
                "have 16 bits already; remove the option"
            )
        if self.compression == "fp16" and getattr(precision, "scaler", None) is None:
            raise ValueError(
                "ddp.compression fp16 needs the loss scale of trainer.precision 16-mixed, which keeps gradients in its "
                f"range; trainer.precision is {precision.precision}, with which small gradients become 0. Use bf16"
            )


def _other_strategy(trainer: Trainer) -> str:
    name = type(trainer.strategy).__name__
    if has_sharded_weights(trainer.strategy):
        return (
            f"ddp.* are settings of DDP, and trainer.strategy is {name}: FSDP sends gradients in the format of "
            "trainer.precision (bf16-mixed: 16 bits), layer by layer. Remove them"
        )
    return f"ddp.* are settings of DDP, and trainer.strategy is {name}: remove them, or use strategy ddp"
