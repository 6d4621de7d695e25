"""Returns the original shapes of quantized weights, which have them as the attribute `unsharded_shape`.

The codes of a quantized weight have fewer elements than the weight. A sharded weight is a DTensor, whose shape is that
of the whole.
"""

from torch import nn


def unsharded_ndim(parameter: nn.Parameter) -> int:
    """Return the number of dimensions of the whole weight, e.g. 2 for a matrix."""
    return len(getattr(parameter, "unsharded_shape", parameter.shape))


def unsharded_numel(parameter: nn.Parameter) -> int:
    """Return the number of elements of the whole weight."""
    return getattr(parameter, "unsharded_shape", parameter.shape).numel()
