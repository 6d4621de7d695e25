"""FSDP on CPUs, for tests: a run refuses it, and Lightning lacks it. It computes the same as on GPUs."""

from typing import Any
from unittest.mock import patch

import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel

from engine.strategies.fsdp import VerifiedFSDPStrategy
from lightning_modules.multimodal.language import language_model

_build = FullyShardedDataParallel.__init__


def _build_on_cpu(one: FullyShardedDataParallel, *arguments: Any, **options: Any) -> None:
    _build(one, *arguments, **{**options, "device_id": torch.device("cpu")})


def _left_where_it_is(rank0_only: bool, offload_to_cpu: bool) -> FullStateDictConfig:
    # Of weights that are on the CPU, torch makes no copy before it frees them.
    return FullStateDictConfig(rank0_only=False, offload_to_cpu=False)


class ShardedOnCPU(VerifiedFSDPStrategy):
    def setup_environment(self) -> None:
        FSDPStrategy.setup_environment(self)
        language_model._MAX_SCORED = 2  # processes call heads a different number of times
        if self.precision_plugin.precision == "bf16-mixed":  # Lightning's is for GPUs alone
            vars(self.precision_plugin)["forward_context"] = lambda: torch.autocast("cpu", torch.bfloat16)

    def _setup_model(self, model: nn.Module) -> nn.Module:
        with patch.object(FullyShardedDataParallel, "__init__", _build_on_cpu):
            return super()._setup_model(model)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        with patch("torch.distributed.fsdp.FullStateDictConfig", _left_where_it_is):
            return super().lightning_module_state_dict()
