"""Implements Muon (Jordan et al., https://kellerjordan.github.io/posts/muon, 2024) on matrices, AdamW on the rest."""

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from typing_extensions import override

from engine.optim.custom_update import CustomUpdateOptimizer

MOMENTUM = "momentum_buffer"
"""Key of a matrix's momentum in the optimizer state."""

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic polynomial in the source above
_ITERATIONS = 5


class Muon(CustomUpdateOptimizer, AdamW):
    """Optimizer that orthogonalizes the momentum of hidden matrices and updates all other weights as AdamW.

    The singular values of a matrix's update are all about 1. Updates are scaled to the size of AdamW's, so AdamW's
    learning rate and weight decay can be reused (Liu et al., "Muon is Scalable for LLM Training", 2025, section 2.2).
    The state of a matrix is a single tensor of its size.

    Args:
        groups: parameter groups.
        matrices: parameters to orthogonalize; two-dimensional.
        lr: learning rate.
        betas: decay rates of AdamW.
        momentum: decay rate of the matrices' momentum.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        matrices: Collection[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        momentum: float = 0.95,
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas)
        self._matrices, self._momentum = set(matrices), momentum

    @override
    def has_custom_update(self, parameter: nn.Parameter) -> bool:
        return parameter in self._matrices

    @override
    def update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)  # AdamW's load_state_dict requires it
            state[MOMENTUM] = torch.zeros_like(parameter)
        state["step"] += 1
        # m <- mu m + (1 - mu) g
        mean = state[MOMENTUM].lerp_(gradient, 1 - self._momentum)
        update = _orthogonalize(gradient.lerp(mean, self._momentum))  # Nesterov momentum
        # Decoupled weight decay, as in AdamW.
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        # An orthogonal [M, N] has entries of about 1 / sqrt(max(M, N)), and AdamW's updates a root mean square of 0.2.
        parameter.add_(update, alpha=-0.2 * math.sqrt(max(parameter.shape)) * group["lr"])


def _orthogonalize(matrix: Tensor) -> Tensor:
    """Orthogonalize a matrix, of which each rank may hold some rows; then a collective."""
    # The singular values of a shard are not the singular values of the matrix, so a sharded matrix is gathered.
    if not hasattr(matrix, "full_tensor"):
        return newton_schulz(matrix)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(matrix, DTensor)
    # Each rank computes the whole product, and keeps its rows of it.
    orthogonal = newton_schulz(matrix.full_tensor())
    return distribute_tensor(orthogonal, matrix.device_mesh, matrix.placements, src_data_rank=None)


def newton_schulz(matrix: Tensor) -> Tensor:
    """Orthogonalize a matrix approximately by a Newton-Schulz iteration.

    Args:
        matrix: [M, N]. Computed in bfloat16 on a GPU, as in the source, otherwise in float32.

    Returns:
        [M, N], with the matrix's singular vectors and singular values between about 0.7 and 1.2.
    """
    a, b, c = _COEFFICIENTS
    result = matrix.bfloat16() if matrix.is_cuda else matrix.float()
    tall = matrix.shape[0] > matrix.shape[1]  # the Gram matrix below has the size of the shorter side
    if tall:
        result = result.T
    # The iteration converges for singular values up to 1, and the Frobenius norm bounds the largest.
    result = result / result.norm().clamp_min(1e-7)
    for _ in range(_ITERATIONS):
        # X <- a X + (b A + c A A) X  with  A = X X^T
        gram = result @ result.T
        result = torch.addmm(result, torch.addmm(gram, gram, gram, beta=b, alpha=c), result, beta=a)
    return (result.T if tall else result).to(matrix.dtype)
