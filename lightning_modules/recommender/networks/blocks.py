"""Implements the encoder's blocks: attention and a feed-forward network, each with a residual connection.

The layers of LiGR (Borisyuk et al., "From Features to Transformers", arXiv 2502.03417), which eSASRec (Tikhonovich et
al., arXiv 2508.06450) uses, are blocks with a gate in both sublayers and a SwiGLU feed-forward network.
"""

from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from lightning_modules.recommender.networks.attention.time_interval import TimeContext
from lightning_modules.recommender.networks.counter_dropout import Dropout
from lightning_modules.recommender.networks.last_position import select_position

Context = TimeContext | Tensor | None
"""What attention of a kind needs beside the states: `TimeContext`, or the buckets of `HSTUAttention`."""


class EncoderBlock(nn.Module):
    """Attention and a feed-forward network, if there is one, each with a residual connection."""

    def __init__(self, attention: "Sublayer", feed_forward: "Sublayer | None" = None) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def forward(self, state: Tensor, context: Context, last: Tensor | None = None) -> Tensor:
        """Map a state [B, L, C] or [B, L, n, C] to the same shape; with `last`, [B], to those positions: L is 1."""
        state = self.attention(state, context, last=last)
        return state if self.feed_forward is None else self.feed_forward(state)


class Sublayer(nn.Module):
    """A function of [B, L, C] with its norm, dropout and residual connection.

    With a gate, the residual connection adds f(norm(x)) * sigmoid(W x + b) instead of f(norm(x)), as in LiGR's layers.
    With several streams, x is what the sublayer reads of them.
    """

    def __init__(
        self, function: nn.Module, residual: nn.Module, hidden_size: int, dropout: float, pre: bool, gated: bool
    ) -> None:
        super().__init__()
        self.function, self.residual = function, residual
        self.norm, self.dropout = nn.LayerNorm(hidden_size), Dropout(dropout)
        self.pre = pre
        self.gate = nn.Linear(hidden_size, hidden_size) if gated else None

    def forward(self, state: Tensor, *context: Context, last: Tensor | None = None) -> Tensor:
        """Apply the sublayer; with `last`, [B], at those positions only (attention)."""
        position = () if last is None else (last,)

        def branch(x: Tensor) -> Tensor:
            change = self.dropout(self.function(self.norm(x) if self.pre else x, *context, *position))
            if self.gate is None:
                return change
            # LiGR's gate reads x before the norm.
            return change * self.gate(x if last is None else select_position(x, last)).sigmoid()

        state = self.residual(state, branch, *position)
        return state if self.pre else self.norm(state)


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between them, at each position (Kang and McAuley, ICDM 2018, eq. 5)."""

    def __init__(self, hidden_size: int, feed_forward_size: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(hidden_size, feed_forward_size), nn.Linear(feed_forward_size, hidden_size)
        self.dropout = Dropout(dropout)

    @override
    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x))))


class SwiGLU(nn.Module):
    """W3 (silu(W1 x) * W2 x) at each position, without biases (Shazeer, "GLU Variants Improve Transformer", eq. 6).

    It has half as many weights again as a FeedForward of the same inner width.
    """

    def __init__(self, hidden_size: int, feed_forward_size: int, dropout: float) -> None:
        super().__init__()
        self.gate, self.inner = (nn.Linear(hidden_size, feed_forward_size, bias=False) for _ in range(2))
        self.outer = nn.Linear(feed_forward_size, hidden_size, bias=False)
        self.dropout = Dropout(dropout)

    @override
    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.silu(self.gate(x)) * self.inner(x)))
