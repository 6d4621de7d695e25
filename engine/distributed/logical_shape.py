"""Returns the original shapes of quantized weights, which have them as the attribute `unsharded_shape`.

The codes of a quantized weight have fewer elements than the weight. A sharded weight is a DTensor, whose shape is that
of the whole.
"""

from torch import nn

UNSHARDED_SHAPE = "unsharded_shape"
"""Attribute of a quantized weight."""


def unsharded_ndim(parameter: nn.Parameter) -> int:
    """Return the number of dimensions of the whole weight, e.g. 2 for a matrix."""
    return len(getattr(parameter, UNSHARDED_SHAPE, parameter.shape))


def unsharded_numel(parameter: nn.Parameter) -> int:
    """Return the number of elements of the whole weight."""
    return getattr(parameter, UNSHARDED_SHAPE, parameter.shape).numel()
