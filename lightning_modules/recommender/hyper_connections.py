"""How a sublayer's output joins the residual state: plainly, or by manifold-constrained hyper-connections (mHC)."""

from collections.abc import Callable

from torch import Tensor, nn


class PlainResidual(nn.Module):
    """state + function(state), with a state of [B, L, C]."""

    def forward(self, state: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return state + function(state)
