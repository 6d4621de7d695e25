"""Builds the parameter groups of an optimizer, and resets the settings of groups that a checkpoint has restored."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from engine.distributed.logical_shape import logical_ndim


def decay_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return the groups of a module's trained parameters: matrices with weight decay, all others without."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    # By the logical shape, because the codes of a quantized weight have another shape.
    matrices = [parameter for parameter in trained if logical_ndim(parameter) >= 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay, "name": "matrices"},
        {"params": [p for p in trained if logical_ndim(p) < 2], "weight_decay": 0.0, "name": "vectors"},
    ]
    return [group for group in groups if group["params"]]


def embedding_weights(module: nn.Module) -> set[Tensor]:
    """Return the weights of a module's embeddings, for which some optimizers keep another state."""
    return {part.weight for part in module.modules() if isinstance(part, nn.Embedding)}


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters of all groups. In every step this is much faster than asking a module's tree for them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def group_settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the settings of each parameter group, without its parameters."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def override_restored_groups(optimizer: Optimizer, scheduler: LambdaLR, configured: list[dict[str, Any]]) -> None:
    """Replace rates, betas and weight decay that come from a checkpoint by the values of the config.

    Args:
        optimizer: optimizer whose state is restored.
        scheduler: its scheduler, restored as well.
        configured: `group_settings` of the optimizer as the config builds it, with the peak rates.
    """
    # LambdaLR computes lr = base_lr * factor(finished steps); its restored base rates are the old peak rates.
    scheduler.base_lrs = [settings["lr"] for settings in configured]
    for group, settings, factor in zip(optimizer.param_groups, configured, scheduler.lr_lambdas, strict=True):
        # The first step uses the group's rate before the scheduler steps, so it is set as well.
        group.update(settings, initial_lr=settings["lr"], lr=settings["lr"] * factor(scheduler.last_epoch))
