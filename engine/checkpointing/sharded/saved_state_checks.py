"""Checks that saved tensors belong to a model and its optimizer."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engine.checkpointing.sharded.optimizer_names import optimized_parameters
from engine.distributed.errors import MismatchError
from engine.io.name_list import join_names


def check_optimizer_parameters(
    optimizer: Optimizer, state: Mapping[Tensor, Any], names: Mapping[str, nn.Parameter]
) -> None:
    """Raise MismatchError if a parameter with saved state is not trained by the optimizer."""
    trained_parameters = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    unknown = [name for name, parameter in names.items() if parameter in state and parameter not in trained_parameters]
    if unknown:
        raise MismatchError(f"optimizer state of {unknown[0]}, which the optimizer does not train")


def check_optimizer_is_complete(optimizer: Optimizer, stored: Collection[str], module: nn.Module) -> None:
    """Raise MismatchError if a parameter that the optimizer trains has no saved state."""
    names = {parameter: name for name, parameter in optimized_parameters(module).items()}
    trained_names = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    missing = sorted(name for name in trained_names if name not in stored)
    if missing:
        raise MismatchError(f"it lacks the optimizer state of {join_names(missing, 1)}, which this config trains")


def check_shapes(
    own: Mapping[str, torch.Size], saved: Mapping[str, tuple[torch.Size, torch.dtype]], owner: str
) -> None:
    """Raise MismatchError if names or shapes differ.

    Args:
        own: {name: shape} of the tensors that are loaded into.
        saved: {name: (shape, format)} of the tensors in the checkpoint.
        owner: what `own` belongs to, for the message.
    """
    # Names first: a shape is only compared if both have the tensor.
    missing, foreign = sorted(own.keys() - saved.keys()), sorted(saved.keys() - own.keys())
    other = [name for name in own.keys() & saved.keys() if own[name] != saved[name][0]]
    for names, problem in ((missing, "it lacks {}"), (foreign, f"{owner} lacks its {{}}")):
        if names:
            raise MismatchError(problem.format(join_names(names, 1)))
    if other:
        name = min(other)
        raise MismatchError(f"{name} is {tuple(saved[name][0])}, and {tuple(own[name])} in {owner}")
