"""Returns the logical shape of a parameter: the shape of the full-precision, unsharded weight that it represents.

The codes of a quantized weight have fewer elements than the weight, whose shape is their attribute `logical_shape`. A
sharded weight is a DTensor, whose `shape` is the shape of the whole weight already.
"""

from torch import nn

LOGICAL_SHAPE = "logical_shape"
"""Attribute of the codes of a quantized weight."""


def logical_ndim(parameter: nn.Parameter) -> int:
    """Return the number of dimensions of the weight, e.g. 2 for a matrix."""
    return len(getattr(parameter, LOGICAL_SHAPE, parameter.shape))


def logical_numel(parameter: nn.Parameter) -> int:
    """Return the number of elements of the weight."""
    return getattr(parameter, LOGICAL_SHAPE, parameter.shape).numel()
