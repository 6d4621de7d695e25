"""Records the original shapes of sharded and of quantized weights, as the attribute `unsharded_shape`.

Between steps FSDP keeps a flat shard of each weight, whose own shape has no meaning. The codes of a quantized weight
have fewer elements than the weight.
"""

from torch import nn


def record_unsharded_shapes(model: nn.Module) -> None:
    """Record the shape of each weight. Call it before the model is sharded."""
    for parameter in model.parameters():
        parameter.unsharded_shape = parameter.shape  # type: ignore[attr-defined]  # ours, not torch's


def unsharded_ndim(parameter: nn.Parameter) -> int:
    """Return the number of dimensions of the whole weight, e.g. 2 for a matrix."""
    return len(getattr(parameter, "unsharded_shape", parameter.shape))


def unsharded_numel(parameter: nn.Parameter) -> int:
    """Return the number of elements of the whole weight."""
    return getattr(parameter, "unsharded_shape", parameter.shape).numel()
