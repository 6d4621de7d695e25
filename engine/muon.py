"""Muon (Jordan et al., https://kellerjordan.github.io/posts/muon, 2024) on hidden matrices, AdamW on the rest."""

import math
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

MOMENTUM = "momentum_buffer"
"""Where a matrix's running mean stands in its state."""

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(AdamW):
    """A matrix moves by its gradients' running mean with all singular values made about 1; other weights by AdamW.

    An update has the size of AdamW's, so a learning rate and a weight decay that suit AdamW suit it (Liu et al., "Muon
    is Scalable for LLM Training", 2025, section 2.2). The state of a matrix is one tensor of its size.

    Args:
        groups: of parameters.
        matrices: those of them that are turned so; two-dimensional.
        momentum: decay rate of their running mean.
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

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients: dict[nn.Parameter, Tensor] = {}
        for group in self.param_groups:
            for weight in group["params"]:
                if weight in self._matrices and weight.grad is not None:
                    self._turn(weight, weight.grad, group)
                    gradients[weight], weight.grad = weight.grad, None  # AdamW leaves alone what has no gradient
        try:
            super().step()
        finally:
            for weight, gradient in gradients.items():
                weight.grad = gradient
        return loss

    def _turn(self, weight: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.tensor(0.0)  # AdamW's loading looks for it
            state[MOMENTUM] = torch.zeros_like(weight)
        state["step"] += 1
        mean = state[MOMENTUM].lerp_(gradient, 1 - self._momentum)
        update = orthogonalised(gradient.lerp(mean, self._momentum))  # Nesterov's
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(update, alpha=-0.2 * math.sqrt(max(weight.shape)) * group["lr"])


def orthogonalised(matrix: Tensor) -> Tensor:
    """The matrix with singular values between about 0.7 and 1.2 in place of its own, by a Newton-Schulz iteration.

    Args:
        matrix: [M, N]; on a GPU it is computed in bfloat16, as in its source, otherwise in float32.
    """
    a, b, c = _COEFFICIENTS
    result = matrix.bfloat16() if matrix.is_cuda else matrix.float()
    tall = matrix.shape[0] > matrix.shape[1]
    if tall:
        result = result.T
    result = result / result.norm().clamp_min(1e-7)
    for _ in range(_ITERATIONS):
        gram = result @ result.T
        result = torch.addmm(result, torch.addmm(gram, gram, gram, beta=b, alpha=c), result, beta=a)
    return (result.T if tall else result).to(matrix.dtype)
