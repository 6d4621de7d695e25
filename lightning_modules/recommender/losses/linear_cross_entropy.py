"""Computes the cross-entropy over all items, fused with the matrix product of the logits.

The [N, V] logits are the largest tensor of the model (13,000 x 3,416 floats are 178 MB, and autograd keeps three of
them). This implementation computes them in chunks of rows. The forward pass computes the loss and both gradients while
a chunk is in the cache, and the backward pass only scales the gradients.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CPU_CHUNK = 1 << 19
"""Logits in a chunk on a CPU: 2 MB, which fit a core's cache."""
_OTHER_CHUNK = 1 << 26
"""Logits in a chunk on other devices: 256 MB, enough to keep a GPU busy."""
_SMALLEST_CHUNK = 128
"""Rows in a chunk; matrix products with fewer are slow."""


def linear_cross_entropy(states: Tensor, weight: Tensor, classes: Tensor) -> Tensor:
    """Return the sum over n of `logsumexp(states[n] @ weight.T) - states[n] @ weight[classes[n]]`.

    Args:
        states: [N, C]; N may be 0.
        weight: [V, C].
        classes: [N] int64 in [0, V).

    Returns:
        A scalar, float32 (float64 for float64 input). The computation has that dtype even under autocast and for half
        inputs, because the gradients are computed before a GradScaler scales the loss, and would vanish in float16.
        They equal those of `F.cross_entropy(states @ weight.T, classes, reduction="sum")` and have the dtypes of
        the inputs. The function is differentiable once.
    """
    # Determined here, because gradients are always disabled inside the function.
    with_gradients = torch.is_grad_enabled() and (states.requires_grad or weight.requires_grad)
    return _LinearCrossEntropy.apply(states, weight, classes, with_gradients)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, classes: Tensor, with_gradients: bool) -> Tensor:
        exact = torch.promote_types(torch.promote_types(states.dtype, weight.dtype), torch.float32)
        with torch.autocast(states.device.type, enabled=False):
            loss, grad_states, grad_weight = _chunked_loss(states.to(exact), weight.to(exact), classes, with_gradients)
        if grad_states is not None:
            ctx.save_for_backward(grad_states, grad_weight)
            ctx.dtypes = states.dtype, weight.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_states, grad_weight = ctx.saved_tensors
        states_dtype, weight_dtype = ctx.dtypes
        return (grad_states * grad_loss).to(states_dtype), (grad_weight * grad_loss).to(weight_dtype), None, None


def _chunked_loss(
    states: Tensor, weight: Tensor, classes: Tensor, with_gradients: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the loss and, if requested, its gradients with respect to states and weight, all of one dtype."""
    loss = states.new_zeros(())
    grad_states = torch.empty_like(states) if with_gradients else None
    grad_weight = torch.zeros_like(weight) if with_gradients else None
    largest = _CPU_CHUNK if states.device.type == "cpu" else _OTHER_CHUNK
    rows = max(_SMALLEST_CHUNK, largest // len(weight))
    # One buffer for the logits of all chunks, which are not needed after their chunk.
    buffer = states.new_empty(min(rows, len(states)), len(weight))
    for start in range(0, len(states), rows):
        chunk, chunk_classes = states[start : start + rows], classes[start : start + rows]
        logits = torch.mm(chunk, weight.T, out=buffer[: len(chunk)])
        # The largest logit is subtracted before exp, which would overflow. It is added back: log sum exp(x - top) +
        # top.
        top = logits.amax(1, keepdim=True)
        loss += (top - logits.gather(1, chunk_classes.unsqueeze(1))).sum()
        exponentials = logits.sub_(top).exp_()
        total = exponentials.sum(1, keepdim=True)
        loss += total.log().sum()
        if grad_states is not None and grad_weight is not None:
            # dL/ds = softmax(s W^T) W - W[class] and dL/dW = softmax^T s - one_hot^T s. Normalizing after the products
            # saves a pass over [rows, V].
            torch.sub((exponentials @ weight) / total, weight[chunk_classes], out=grad_states[start : start + rows])
            grad_weight.addmm_(exponentials.T, chunk / total)
    if grad_weight is not None:
        # The one-hot part of dL/dW, for all chunks at once.
        grad_weight.index_add_(0, classes, states, alpha=-1)
    return loss, grad_states, grad_weight
