"""Runs the Sinkhorn-Knopp iteration for many small matrices at once, with a memory-saving backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 4096
"""Matrices that are iterated together; few enough for a core's cache."""


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """Return doubly stochastic matrices near `exp(logits)` (Xie et al., arXiv 2512.24880, eq. 9).

    Each iteration normalizes the columns, then the rows. So rows sum to one up to rounding, columns approximately.

    Args:
        logits: [n, n, N]: rows, columns, and N matrices, which come last for contiguous memory.
        iterations: number of iterations, at least 1.

    Returns:
        [n, n, N] of the same dtype; differentiable once, through all iterations.
    """
    # The first iteration cancels a factor per column, so the shift only prevents overflow.
    return _Sinkhorn.apply((logits - logits.detach().amax(0, keepdim=True)).exp(), iterations)


class _Sinkhorn(torch.autograd.Function):
    """Keeps only the sums (2 n N numbers per iteration), from which the backward pass reverses the iteration."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, iterations: int) -> Tensor:
        smallest = torch.finfo(matrices.dtype).tiny
        result, all_sums = [], []
        for part in matrices.split(_chunk(matrices), -1):
            # A copy, because the iteration divides in place.
            part, sums = part.clone(memory_format=torch.contiguous_format), []
            for _ in range(iterations):
                for dim in (0, 1):
                    # A row whose exponentials have all underflowed would be divided by zero.
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
        for index, (part, part_grad) in enumerate(zip(balanced.split(size, -1), grad.split(size, -1), strict=True)):
            # The gradient has the strides of the operation that used the matrices.
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
