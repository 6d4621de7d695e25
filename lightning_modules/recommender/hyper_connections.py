"""How a sublayer's output joins the residual state: plainly, or by manifold-constrained hyper-connections (mHC).

With mHC the residual state has n streams that persist through the whole network: the embedding is copied to all of
them, each sublayer reads a mixture, writes back to every stream and mixes the streams, and their mean is read out
before the final norm. Equation numbers are those of Xie et al., "mHC: Manifold-Constrained Hyper-Connections",
arXiv 2512.24880.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.recommender.last_attention import at
from lightning_modules.recommender.sinkhorn import sinkhorn

_EPSILON = 1e-20  # of the norm of the streams, the paper's table 5
_STAY = 0.9  # share of a stream that H_res keeps in its place at the start


class PlainResidual(nn.Module):
    """state + function(state), with a state of [B, L, C]; with ``last``, [B], at those positions alone: [B, 1, C].

    The function then returns [B, 1, C], too.
    """

    def forward(self, state: Tensor, function: Callable[[Tensor], Tensor], last: Tensor | None = None) -> Tensor:
        return (state if last is None else at(state, last)) + function(state)


class Coefficients(NamedTuple):
    """What a connection derives from the state of each of N positions, float32."""

    pre: Tensor  # [n, N] in (0, 1): how much of each stream the sublayer reads
    post: Tensor  # [n, N] in (0, 2): how much of its output is written to each stream
    residual: Tensor  # [n, n, N]: H_res, rows are the new streams, columns the old ones


class Observation(NamedTuple):
    """The last coefficients and how far the streams were apart, for ManifoldHyperConnection.collect."""

    coefficients: Coefficients
    spread: Tensor  # [N]: deviation of the streams from their mean, relative to their size


class ManifoldHyperConnection(nn.Module):
    """x_{l+1} = H_res x_l + H_post^T F(H_pre x_l), with a state x of [B, L, n, C] (eqs. 6 to 9).

    At the start H_pre = 1/n and H_post = 1 up to the small random part, so the mean over streams is a plain
    residual network. H_res starts near the identity and not, as zero logits would have it, at 1/n everywhere: uniform
    mixing makes all streams equal at once, and with them every use of having several is lost. The random
    part is what lets the streams grow apart; with equal writes they would stay equal for ever.

    The gradient of H_res's parameters is exactly zero in the first sublayer (the streams are still equal), and, with
    norm: pre, zero up to rounding in the last one (the mean does not see a doubly stochastic mixing).

    With one stream there is nothing to mix: every coefficient is 1, there are no parameters, and this is the plain
    residual exactly.

    Args:
        streams: n, at least 1.
        iterations: of Sinkhorn-Knopp.
    """

    balance = staticmethod(sinkhorn)  # an exported graph has its own

    def __init__(self, hidden_size: int, streams: int = 4, iterations: int = 20) -> None:
        super().__init__()
        if streams < 1 or iterations < 1:
            raise ValueError(f"streams and sinkhorn_iterations must be at least 1, got {streams} and {iterations}")
        self.streams, self.iterations = streams, iterations
        self.collect = False
        self.observed: Observation | None = None
        if streams == 1:
            return
        # One matrix and two vectors for H_pre, H_post and H_res together. Vectors, so that weight decay, which is for
        # matrices, leaves alpha and the biases alone.
        self.phi = nn.Parameter(torch.empty(streams * hidden_size, streams * (streams + 2)))
        self.alpha = nn.Parameter(torch.empty(3))
        self.bias = nn.Parameter(torch.empty(streams * (streams + 2)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        n = self.streams
        nn.init.normal_(self.phi, std=0.02)
        nn.init.constant_(self.alpha, 0.01)
        with torch.no_grad():
            self.bias[:n] = -math.log(n - 1)
            self.bias[n : 2 * n] = 0
            self.bias[2 * n :] = (torch.eye(n) * math.log((n - 1) * _STAY / (1 - _STAY))).flatten()

    def forward(self, state: Tensor, function: Callable[[Tensor], Tensor], last: Tensor | None = None) -> Tensor:
        """state [B, L, n, C] and a function of [B, L, C] -> new state.

        With ``last``, [B], at those positions alone: [B, 1, n, C], of a function that returns [B, 1, C].
        """
        batch, length = state.shape[:2]
        if self.streams == 1:
            return (state if last is None else at(state, last)) + function(state.squeeze(-2)).unsqueeze(-2)
        # Always in float32: half precision misses the sums of one by 1e-3 (float16) or 1e-2 (bfloat16).
        with torch.autocast(state.device.type, enabled=False):
            flat = state.flatten(0, 1).to(torch.promote_types(state.dtype, torch.float32))
            logits = self._logits(flat)
            pre = logits[: self.streams].sigmoid()
            read = (pre.T.contiguous().unsqueeze(-1) * flat).sum(1)
        # Sublayer and state keep the dtype of the state: float32 also under autocast, half with half parameters.
        written = function(read.unflatten(0, (batch, length)).to(state.dtype))
        with torch.autocast(state.device.type, enabled=False):
            if last is not None:
                places = torch.arange(batch, device=last.device) * length + last
                flat, logits, pre, length = flat[places], logits[:, places], pre[:, places], 1
            coefficients = self._coefficients(pre, logits[self.streams :])
            if self.collect:
                self.observed = _observe(coefficients, flat)
            # Contiguous, because a batched product of other strides is computed matrix by matrix on a CPU.
            mixing, post = coefficients.residual.permute(2, 0, 1).contiguous(), coefficients.post.T.contiguous()
            addition = post.unsqueeze(-1) * written.flatten(0, 1).to(flat.dtype).unsqueeze(1)
            return torch.baddbmm(addition, mixing, flat).unflatten(0, (batch, length)).to(state.dtype)

    def _logits(self, flat: Tensor) -> Tensor:
        """What the coefficients of states [N, n, C] come from: [n (n + 2), N] float32 (eq. 7).

        The parameters may be of half precision.
        """
        n = self.streams
        phi, alpha, bias = (parameter.to(flat.dtype) for parameter in (self.phi, self.alpha, self.bias))
        vectors = flat.flatten(1)
        size = (vectors.square().mean(1) + _EPSILON).sqrt()
        # The norm divides after the product (eqs. 14 to 16); its gain would be absorbed by phi.
        dynamic = (phi.T @ vectors.T) / size
        alpha = torch.cat([gate.expand(part) for gate, part in zip(alpha, (n, n, n * n), strict=True)])
        return alpha.unsqueeze(1) * dynamic + bias.unsqueeze(1)

    def _coefficients(self, pre: Tensor, logits: Tensor) -> Coefficients:
        """From H_pre and the other logits (eq. 8)."""
        n = self.streams
        post, residual = logits.split((n, n * n))
        return Coefficients(pre, 2 * post.sigmoid(), self.balance(residual.unflatten(0, (n, n)), self.iterations))


def _observe(coefficients: Coefficients, flat: Tensor) -> Observation:
    flat = flat.detach()
    apart = (flat - flat.mean(1, keepdim=True)).square().mean((1, 2)).sqrt()
    size = (flat.square().mean((1, 2)) + _EPSILON).sqrt()
    return Observation(Coefficients(*(part.detach() for part in coefficients)), apart / size)


def diagnose(connections: list[ManifoldHyperConnection], real: Tensor) -> dict[str, Tensor]:
    """Figures of the last forward pass through connections that collect, in the order of the network.

    Args:
        real: [N] bool, the positions that count.

    Returns:
        Scalars on the device, means over real positions: per connection ``stream_spread`` (0: the streams have
        collapsed), ``sum_error`` (largest distance of a row's or column's sum from one), ``pre``, ``post`` and
        ``gain`` (largest row or column sum of the product of all H_res up to there, the paper's composite gain: it
        should stay near 1).
    """
    figures = {}
    product = None
    count = real.sum().clamp_min(1)
    for index, connection in enumerate(connections):
        if connection.observed is None:
            continue
        (pre, post, residual), spread = connection.observed
        residual = residual.permute(2, 0, 1)
        product = residual if product is None else residual @ product
        sums = torch.cat((residual.sum(1), residual.sum(2)), 1)
        gains = torch.cat((product.abs().sum(1), product.abs().sum(2)), 1).amax(1)
        columns = {
            "stream_spread": spread,
            "sum_error": (sums - 1).abs().amax(1),
            "pre": pre.mean(0),
            "post": post.mean(0),
            "gain": gains,
        }
        for name, values in columns.items():
            figures[f"{name}/{index}"] = torch.where(real, values, 0.0).sum() / count
    return figures
