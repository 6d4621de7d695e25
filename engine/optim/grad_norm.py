"""Computes gradient norms of a step, equal on all ranks."""

import math
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def gradient_norm(parameters: Iterable[nn.Parameter], model: nn.Module | None = None) -> Tensor:
    """Return the L2 norm of all gradients, taken as one vector.

    The norm is non-finite if and only if a gradient is, or their squares overflow. Replicas hold the same gradients
    after DDP's all-reduce, so their norms are equal without communication. Under FSDP the norm is summed over shards
    with an all-reduce, so all ranks must call.

    Args:
        parameters: parameters with gradients.
        model: model that the strategy trains, to detect FSDP.

    Returns:
        scalar.
    """
    if model is not None and _is_sharded(model):
        return model.clip_grad_norm_(math.inf)  # type: ignore[operator]  # may be a tensor for mypy
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    # FSDP2's gradients are DTensors, and so is their norm, of which each rank holds a part.
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


@torch.no_grad()
def grad_norm_per_group(groups: Iterable[dict[str, Any]], model: nn.Module | None = None) -> dict[str, Tensor]:
    """Return {part: scalar}, the `gradient_norm` of each part of a model. Under FSDP all ranks must call.

    Reads every gradient once more, so call it only in steps that are logged.

    Args:
        groups: the optimizer's parameter groups, named `PART` or `PART/KIND`.
        model: as for `gradient_norm`.

    Returns:
        empty if the model has a single part.
    """
    gradients: dict[str, list[Tensor]] = {}
    for number, group in enumerate(groups):
        part = str(group.get("name", number)).split("/")[0]
        gradients.setdefault(part, []).extend(p.grad for p in group["params"] if p.grad is not None)
    if len(gradients) == 1:
        return {}
    if model is not None and _is_sharded(model):
        return _norms_of_shards(gradients, model)
    norms = {part: torch.nn.utils.get_total_norm(grads) for part, grads in gradients.items()}
    return {part: norm.full_tensor() if hasattr(norm, "full_tensor") else norm for part, norm in norms.items()}


def _norms_of_shards(gradients: dict[str, list[Tensor]], model: Any) -> dict[str, Tensor]:
    """Sum the squares over the ranks that share a part; a rank may hold none of it, or several shards."""
    from torch.distributed.fsdp import ShardingStrategy

    norms = [torch.nn.utils.get_total_norm(grads).to(model.compute_device) for grads in gradients.values()]
    squares = torch.stack(norms).float().square()
    if model.sharding_strategy != ShardingStrategy.NO_SHARD:
        torch.distributed.all_reduce(squares, group=model.process_group)
    return dict(zip(gradients, squares.sqrt().unbind(), strict=True))


def _is_sharded(model: nn.Module) -> bool:
    # Importing it takes a second. If it is not imported, nothing is sharded.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(model, fsdp.FullyShardedDataParallel)
