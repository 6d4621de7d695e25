"""Computes cross-entropy by Liger Kernel (Hsu et al. 2024, arXiv 2410.10989), fused with the output layer.

It computes logits and gradients in chunks of tokens, so that the logits [N, V] are never whole in memory. Liger's other
kernels are not used: its functions that set them exchange classes of transformers for the whole process, and
`compile` fuses norms and activations as well.
"""

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.system.bitsandbytes_import import silence_bitsandbytes_import


def liger_cross_entropy(layer: nn.Module, states: Tensor, targets: Tensor, reduction: Literal["none", "sum"]) -> Tensor:
    """Return `cross_entropy` of the layer's logits: the terms [N] float32, or their sum.

    The gradients of `sum` are computed with the value; the gradients of `none` recompute the logits, in chunks again.

    Args:
        layer: nn.Linear from C to V.
        states: [N, C].
        targets: [N] int64.
        reduction: `none` for the terms, `sum` for their sum.
    """
    output = cast("nn.Linear", layer)
    if not len(targets):  # Liger would divide by 0
        return F.cross_entropy(output(states).float(), targets, reduction=reduction)
    silence_bitsandbytes_import()  # liger_kernel imports it by way of peft
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    # The gradient of the weight is a sum over all chunks.
    fused = LigerFusedLinearCrossEntropyLoss(reduction=reduction, accum_dtype=torch.float32)
    return fused(output.weight, states, targets, output.bias)
