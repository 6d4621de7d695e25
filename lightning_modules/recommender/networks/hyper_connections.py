"""Implements residual connections: plain, or manifold-constrained hyper-connections (mHC).

With mHC the residual state has n streams throughout the network. The embedding is copied to all of them. Each sublayer
reads a mixture, writes to every stream and mixes the streams. The final norm is applied to their mean. Equation numbers
are those of Xie et al., "mHC: Manifold-Constrained Hyper-Connections", arXiv 2512.24880.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from lightning_modules.recommender.networks.last_position import select_position
from lightning_modules.recommender.networks.sinkhorn import sinkhorn

_EPSILON = 1e-20  # added to the squared norm of the streams, as in the paper's table 5
_DIAGONAL = 0.9  # initial diagonal of H_res


class PlainResidual(nn.Module):
    """Computes state + function(state) for a state [B, L, C].

    With `last`, [B], it computes those positions only: function and result have the shape [B, 1, C].
    """

    @override
    def forward(self, state: Tensor, function: Callable[[Tensor], Tensor], last: Tensor | None = None) -> Tensor:
        return (state if last is None else select_position(state, last)) + function(state)


class Coefficients(NamedTuple):
    """Coefficients of a connection at each of N positions, float32."""

    pre: Tensor  # [n, N] in (0, 1): weights with which the sublayer reads the streams
    post: Tensor  # [n, N] in (0, 2): weights with which its output is written to the streams
    residual: Tensor  # [n, n, N]: H_res, rows are the new streams, columns the old streams


class Observation(NamedTuple):
    """Coefficients and spread of a forward pass, kept if ManifoldHyperConnection.collect is set."""

    coefficients: Coefficients
    spread: Tensor  # [N]: deviation of the streams from their mean, relative to their size


class ManifoldHyperConnection(nn.Module):
    """Computes x_{l+1} = H_res x_l + H_post^T F(H_pre x_l), with a state x of [B, L, n, C] (eqs. 6 to 9).

    Initially H_pre = 1/n and H_post = 1 up to a small random part, so the mean over streams is a plain residual
    network. H_res starts near the identity. Zero logits would make it 1/n everywhere, and uniform mixing makes all
    streams equal, so that several are of no use. The random part lets the streams diverge; with equal writes they would
    stay equal.

    The gradient of H_res's parameters is zero in the first sublayer, where the streams are equal, and, with norm: pre,
    zero up to rounding in the last block, because a doubly stochastic mixing does not change the mean.

    With one stream every coefficient is 1, there are no parameters, and the connection is exactly a plain residual.

    Args:
        hidden_size: width C of a stream.
        streams: number of streams n, at least 1.
        iterations: Sinkhorn-Knopp iterations.
    """

    balance = staticmethod(sinkhorn)  # an exported graph replaces it

    def __init__(self, hidden_size: int, streams: int = 4, iterations: int = 20) -> None:
        super().__init__()
        if streams < 1 or iterations < 1:
            raise ValueError(f"streams and sinkhorn_iterations must be at least 1, got {streams} and {iterations}")
        self.streams, self.iterations = streams, iterations
        self.collect = False
        self.observed: Observation | None = None
        if streams == 1:
            return
        # One matrix and two vectors for H_pre, H_post and H_res together. alpha and the biases are vectors, so that
        # they have no weight decay.
        self.phi = nn.Parameter(torch.empty(streams * hidden_size, streams * (streams + 2)))
        self.alpha = nn.Parameter(torch.empty(3))
        self.bias = nn.Parameter(torch.empty(streams * (streams + 2)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw phi, and set alpha and the biases to the initial values of the class's docstring."""
        n = self.streams
        nn.init.normal_(self.phi, std=0.02)
        nn.init.constant_(self.alpha, 0.01)
        with torch.no_grad():
            self.bias[:n] = -math.log(n - 1)  # H_pre: sigmoid(-log(n - 1)) = 1 / n
            self.bias[n : 2 * n] = 0  # H_post: 2 sigmoid(0) = 1
            # H_res: Sinkhorn makes these logits _DIAGONAL on the diagonal and equal elsewhere.
            self.bias[2 * n :] = (torch.eye(n) * math.log((n - 1) * _DIAGONAL / (1 - _DIAGONAL))).flatten()

    def forward(self, state: Tensor, function: Callable[[Tensor], Tensor], last: Tensor | None = None) -> Tensor:
        """Return the new state [B, L, n, C], given a state and a function of [B, L, C].

        With `last`, [B], compute those positions only: [B, 1, n, C], with a function that returns [B, 1, C].
        """
        batch, length = state.shape[:2]
        if self.streams == 1:
            return (state if last is None else select_position(state, last)) + function(state.squeeze(-2)).unsqueeze(-2)
        # Always in float32: in half precision the sums of 1 are off by 1e-3 (float16) or 1e-2 (bfloat16).
        with torch.autocast(state.device.type, enabled=False):
            # [N, n, C] with N = B L positions.
            flat = state.flatten(0, 1).to(torch.promote_types(state.dtype, torch.float32))
            logits = self._logits(flat)
            pre = logits[: self.streams].sigmoid()
            read = (pre.T.contiguous().unsqueeze(-1) * flat).sum(1)  # [N, C]: H_pre x
        # The sublayer gets the dtype of the state: float32 also under autocast, half with half parameters.
        written = function(read.unflatten(0, (batch, length)).to(state.dtype))
        with torch.autocast(state.device.type, enabled=False):
            if last is not None:
                # Index of each row's last event among the N flattened positions.
                rows = torch.arange(batch, device=last.device) * length + last
                flat, logits, pre, length = flat[rows], logits[:, rows], pre[:, rows], 1
            coefficients = self._coefficients(pre, logits[self.streams :])
            if self.collect:
                self.observed = _observe(coefficients, flat)
            # On a CPU, a batched product of other strides is computed matrix by matrix.
            mixing, post = coefficients.residual.permute(2, 0, 1).contiguous(), coefficients.post.T.contiguous()
            addition = post.unsqueeze(-1) * written.flatten(0, 1).to(flat.dtype).unsqueeze(1)
            # H_res x + H_post^T F(H_pre x), in one batched product: [N, n, n] by [N, n, C].
            return torch.baddbmm(addition, mixing, flat).unflatten(0, (batch, length)).to(state.dtype)

    def _logits(self, flat: Tensor) -> Tensor:
        """Return the logits [n (n + 2), N] float32 of the coefficients of states [N, n, C] (eq. 7).

        The parameters may have half precision.
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
        """Return the coefficients, given H_pre and the other logits (eq. 8)."""
        n = self.streams
        post, residual = logits.split((n, n * n))
        return Coefficients(pre, 2 * post.sigmoid(), self.balance(residual.unflatten(0, (n, n)), self.iterations))


def _observe(coefficients: Coefficients, flat: Tensor) -> Observation:
    # Detached, so that diagnostics keep no graph alive after the backward pass.
    flat = flat.detach()
    apart = (flat - flat.mean(1, keepdim=True)).square().mean((1, 2)).sqrt()
    size = (flat.square().mean((1, 2)) + _EPSILON).sqrt()
    return Observation(Coefficients(*(part.detach() for part in coefficients)), apart / size)


def diagnose(connections: list[ManifoldHyperConnection], real: Tensor) -> dict[str, Tensor]:
    """Return diagnostics of the last forward pass.

    Args:
        connections: connections that collect, in the order of the network.
        real: [N] bool mask of the positions that count.

    Returns:
        Scalars on the device, means over real positions. Each connection has `stream_spread` (0: the streams have
        collapsed), `sum_error` (largest difference of a row's or column's sum from 1), `pre`, `post` and `gain`
        (largest row or column sum of the product of all H_res so far, the paper's composite gain; near 1 is stable).
    """
    metrics = {}
    product = None
    count = real.sum().clamp_min(1)
    for index, connection in enumerate(connections):
        if connection.observed is None:
            continue
        (pre, post, residual), spread = connection.observed
        residual = residual.permute(2, 0, 1)
        # The layers mix one after the other, so their product has the gain of the whole network.
        product = residual if product is None else residual @ product
        # [N, 2 n]: sums of the columns and rows, 1 for a doubly stochastic matrix.
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
            # torch.where drops non-finite values of padding, which a product with the mask would keep.
            metrics[f"{name}/{index}"] = torch.where(real, values, 0.0).sum() / count
    return metrics


def summarize(diagnostics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the metrics of mHC over all connections: `gain` and `sum_error` are maxima, the others means.

    A composite gain near 1 is stable; a spread of the streams of 0 means that they have collapsed. `sum_error` is the
    error of the mixings' row and column sums; `pre` and `post` are the weights with which sublayers read and write a
    stream.

    Args:
        diagnostics: result of `diagnose`, scalars.
    """
    reductions: dict[str, Callable[[Tensor], Tensor]] = {
        "gain": torch.max, "stream_spread": torch.mean, "sum_error": torch.max, "pre": torch.mean, "post": torch.mean,
    }  # fmt: skip
    by_name = {name: [value for key, value in diagnostics.items() if key.startswith(f"{name}/")] for name in reductions}
    return {name: reductions[name](torch.stack(values)) for name, values in by_name.items() if values}
