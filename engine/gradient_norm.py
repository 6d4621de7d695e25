"""The norm of a step's gradient, the same number on every process."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


@torch.no_grad()
def gradient_norm(parameters: Iterable[nn.Parameter], model: nn.Module | None = None) -> Tensor:
    """The L2 norm of all gradients as one vector, a scalar; NaN or infinite exactly if a gradient is (or overflows).

    Replicas hold the same gradients after DDP's all-reduce, so they come to the same norm without another one. Shards
    do not: `model` is what the strategy trains, and when that is FSDP's root its own norm is taken, which sums over
    the shards with an all-reduce. Every process must call then.
    """
    if model is not None and _is_sharded(model):
        return model.clip_grad_norm_(math.inf)  # type: ignore[operator]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    # FSDP2's gradients are DTensors, and so is their norm: each process has its part.
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def _is_sharded(model: nn.Module) -> bool:
    if not torch.distributed.is_available():  # such builds of torch have no FSDP to import
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    return isinstance(model, FullyShardedDataParallel)
