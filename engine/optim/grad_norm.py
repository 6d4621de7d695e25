"""Computes gradient norms of a step, equal on all ranks."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the L2 norm of all gradients, taken as one vector.

    The norm is non-finite if and only if a gradient is, or their squares overflow. Replicas hold the same gradients
    after DDP's all-reduce, so their norms are equal without communication. Under FSDP the norm is summed over shards
    with an all-reduce, so all ranks must call.

    Args:
        parameters: parameters with gradients.

    Returns:
        scalar.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return _norm(gradients)


@torch.no_grad()
def grad_norm_per_group(groups: Iterable[dict[str, Any]]) -> dict[str, Tensor]:
    """Return {part: scalar}, the `gradient_norm` of each part of a model. Under FSDP all ranks must call.

    Reads every gradient once more, so call it only in steps that are logged.

    Args:
        groups: the optimizer's parameter groups, named `PART` or `PART/KIND`.

    Returns:
        empty if the model has a single part.
    """
    gradients: dict[str, list[Tensor]] = {}
    for number, group in enumerate(groups):
        part = str(group.get("name", number)).split("/")[0]
        gradients.setdefault(part, []).extend(p.grad for p in group["params"] if p.grad is not None)
    if len(gradients) == 1:
        return {}
    return {part: _norm(grads) for part, grads in gradients.items()}


def _norm(gradients: list[Tensor]) -> Tensor:
    norm = torch.nn.utils.get_total_norm(gradients)
    # The gradients of shards are DTensors, and so is their norm, of which each rank holds a part.
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
