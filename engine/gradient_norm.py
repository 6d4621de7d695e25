"""The norm of a step's gradient, the same number on every process."""

import math
import sys
from collections.abc import Iterable
from typing import Any

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


@torch.no_grad()
def norms_by_part(groups: Iterable[dict[str, Any]], model: nn.Module | None = None) -> dict[str, Tensor]:
    """{part: scalar}: the same norm of each part of a model alone, by the optimizer's groups `PART` or `PART/KIND`.

    Reads every gradient once more, so for steps that are logged. `model` as in `gradient_norm`; all processes call.
    """
    gradients: dict[str, list[Tensor]] = {}
    for number, group in enumerate(groups):
        part = str(group.get("name", number)).split("/")[0]
        gradients.setdefault(part, []).extend(p.grad for p in group["params"] if p.grad is not None)
    if len(gradients) == 1:  # the whole
        return {}
    if model is not None and _is_sharded(model):
        return _of_shards(gradients, model)
    norms = {part: torch.nn.utils.get_total_norm(of_part) for part, of_part in gradients.items()}
    return {part: norm.full_tensor() if hasattr(norm, "full_tensor") else norm for part, norm in norms.items()}


def _of_shards(gradients: dict[str, list[Tensor]], model: Any) -> dict[str, Tensor]:
    """A process may hold nothing of a part, or several pieces of it; the squares are summed over all that share it."""
    from torch.distributed.fsdp import ShardingStrategy

    norms = [torch.nn.utils.get_total_norm(of_part).to(model.compute_device) for of_part in gradients.values()]
    squares = torch.stack(norms).float().square()
    if model.sharding_strategy != ShardingStrategy.NO_SHARD:
        torch.distributed.all_reduce(squares, group=model.process_group)
    return dict(zip(gradients, squares.sqrt().unbind(), strict=True))


def _is_sharded(model: nn.Module) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")  # the import takes a second; without it nobody has sharded
    return fsdp is not None and isinstance(model, fsdp.FullyShardedDataParallel)
