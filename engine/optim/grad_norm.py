"""Computes gradient norms of a step, equal on all ranks."""

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from engine.distributed.collectives import gather_shards

TensorT = TypeVar("TensorT", bound=Tensor)


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
        # `PART/KIND`: all kinds of a part count together.
        part = str(group.get("name", number)).split("/")[0]
        gradients.setdefault(part, []).extend(p.grad for p in group["params"] if p.grad is not None)
    # The norm of a single part is the norm of the whole gradient, which is logged anyway.
    if len(gradients) == 1:
        return {}
    return {part: _norm(grads) for part, grads in gradients.items()}


def clip(parameters: Iterable[nn.Parameter], max_norm: float, norm: Tensor) -> None:
    """Scale the gradients in place so that their norm is at most `max_norm`.

    Args:
        parameters: parameters with gradients.
        max_norm: largest norm.
        norm: scalar, the `gradient_norm` of the parameters.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    # torch scales by min(1, max_norm / (norm + 1e-6)), with the norm of all meshes for each mesh.
    for part in _group_by_mesh(trained):
        torch.nn.utils.clip_grads_with_norm_(part, max_norm, norm)


def clip_values(parameters: Iterable[nn.Parameter], limit: float) -> None:
    """Clip each element of the gradients in place, to `limit` at most in absolute value.

    Args:
        parameters: parameters with gradients.
        limit: largest absolute value.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    for part in _group_by_mesh(trained):  # with FSDP, the rows of a divided table are no DTensor
        torch.nn.utils.clip_grad_value_(part, limit)


def local_shards(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return what this rank holds of each tensor, without a copy.

    torch's multi-tensor functions refuse shards of different device meshes.
    """
    return [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]


def _norm(gradients: list[Tensor]) -> Tensor:
    norms = [torch.nn.utils.get_total_norm(part) for part in _group_by_mesh(gradients)]
    # The gradients of shards are DTensors, and so is their norm, of which each rank holds a part.
    norms = [gather_shards(norm) for norm in norms]
    # The norm of the norms is the norm of all gradients as one vector.
    return norms[0] if len(norms) == 1 else torch.nn.utils.get_total_norm(norms)


def _group_by_mesh(tensors: list[TensorT]) -> list[list[TensorT]]:
    """Group tensors by device mesh: torch's functions accept a single mesh, and tensor parallelism has several."""
    groups: dict[object, list[TensorT]] = {}
    for tensor in tensors:
        groups.setdefault(getattr(tensor, "device_mesh", None), []).append(tensor)
    return list(groups.values())
