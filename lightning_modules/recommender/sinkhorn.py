"""The Sinkhorn-Knopp iteration for many small matrices at once, with a lean backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """Doubly stochastic matrices near ``exp(logits)`` (Xie et al., arXiv 2512.24880, eq. 9).

    Each iteration normalises the columns, then the rows; so rows sum to one up to rounding, columns nearly.

    Args:
        logits: [n, n, N]: rows, columns and, last so that every step runs over contiguous memory, N matrices.

    Returns:
        [n, n, N] of the same dtype; differentiable once, through all iterations.
    """
    # The first iteration normalises columns, so a factor per column changes nothing but keeps exp from overflowing.
    return _Sinkhorn.apply((logits - logits.detach().amax(0, keepdim=True)).exp(), iterations)


_CHUNK = 4096
"""Matrices that go through all iterations together: few enough to stay in a core's cache."""


class _Sinkhorn(torch.autograd.Function):
    """Keeps the sums alone (2 n N numbers per iteration): with them the iteration is run backwards, step by step."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, iterations: int) -> Tensor:
        smallest = torch.finfo(matrices.dtype).tiny
        result, all_sums = [], []
        for part in matrices.split(_chunk(matrices), -1):
            part, sums = part.clone(memory_format=torch.contiguous_format), []
            for _ in range(iterations):
                for dim in (0, 1):
                    sums.append(part.sum(dim, keepdim=True).clamp_min_(smallest))
                    part /= sums[-1]
            result.append(part)
            all_sums += sums
        balanced = torch.cat(result, -1)
        ctx.save_for_backward(balanced, *all_sums)
        ctx.steps = 2 * iterations
        return balanced

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        balanced, *all_sums = ctx.saved_tensors
        size, grads = _chunk(balanced), []
        for index, (part, part_grad) in enumerate(zip(balanced.split(size, -1), grad.split(size, -1))):
            # Contiguous: the gradient arrives in the strides of whoever used the matrices.
            part, part_grad = (x.clone(memory_format=torch.contiguous_format) for x in (part, part_grad))
            for step in reversed(range(ctx.steps)):
                # y = x / sum(x): dx = (dy - sum(dy * y)) / sum(x), and x = y * sum(x).
                total = all_sums[index * ctx.steps + step]
                part_grad -= (part_grad * part).sum(step % 2, keepdim=True)
                part_grad /= total
                part *= total
            grads.append(part_grad)
        return torch.cat(grads, -1), None


def _chunk(matrices: Tensor) -> int:
    return _CHUNK if matrices.device.type == "cpu" else max(1, matrices.shape[-1])
