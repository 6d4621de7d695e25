"""Shapes of weights that are held in shards: FSDP's are flat outside of a step, and a part of the weight."""

from torch import nn


def note_shapes(model: nn.Module) -> None:
    """To be called before a model is sharded."""
    for parameter in model.parameters():
        parameter.whole_shape = parameter.shape  # type: ignore[attr-defined]


def dimensions(parameter: nn.Parameter) -> int:
    """Of the whole weight: 2 of a matrix, whatever this process holds of it."""
    return len(getattr(parameter, "whole_shape", parameter.shape))


def elements(parameter: nn.Parameter) -> int:
    """Of the whole weight."""
    return getattr(parameter, "whole_shape", parameter.shape).numel()
