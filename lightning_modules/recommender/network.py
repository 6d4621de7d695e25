"""The sequence encoder: SASRec and TiSASRec, each with a plain residual or with hyper-connections."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from datamodules.recommender.batch import History
from lightning_modules.recommender.attention import (
    StandardAttention,
    TimeContext,
    TimeIntervalAttention,
    TimeTables,
)
from lightning_modules.recommender.dropout import Dropout
from lightning_modules.recommender.hyper_connections import (
    ManifoldHyperConnection,
    PlainResidual,
    diagnose,
)

Attention = Literal["standard", "time_interval"]
Residual = Literal["plain", "mhc"]
Norm = Literal["pre", "post"]


class SequenceEncoder(nn.Module):
    """Encodes each position of a history from the events up to there; scores are products with item vectors.

    SASRec (Kang and McAuley, ICDM 2018) with ``attention="standard"``, TiSASRec (Li, Wang and McAuley, WSDM 2020) with
    ``"time_interval"``, where positions enter keys and values instead of the input; either with plain residuals or with
    mHC (Xie et al., arXiv 2512.24880).

    Args:
        num_items: V; ids run from 1 to V, 0 is padding.
        max_length: the longest history; positions are counted from its end, so trimming a batch changes nothing.
        hidden_size: C, a multiple of num_heads.
        feed_forward_size: of the layer inside the feed-forward network; None is hidden_size, as in SASRec.
        dropout: at the input, on attention weights, inside and after the feed-forward network, after attention.
        time_span: longest interval told apart, in units of the user's time scale; for time_interval alone.
        residual: ``plain`` or ``mhc`` with so many ``streams`` and ``sinkhorn_iterations``.
        norm: ``pre``: x + F(norm(x)); ``post``: norm(x + F(x)), each stream by itself. A last norm follows in both.
        tie_output: score with the input's item vectors; otherwise with vectors of their own.
        activation_checkpointing: keep only the state between blocks in training and compute the rest again.
    """

    def __init__(
        self,
        num_items: int,
        max_length: int,
        hidden_size: int = 64,
        num_blocks: int = 2,
        num_heads: int = 1,
        feed_forward_size: int | None = None,
        dropout: float = 0.2,
        attention: Attention = "standard",
        time_span: int = 256,
        residual: Residual = "plain",
        streams: int = 4,
        sinkhorn_iterations: int = 20,
        norm: Norm = "pre",
        tie_output: bool = True,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        feed_forward_size = hidden_size if feed_forward_size is None else feed_forward_size
        sizes = {"num_items": num_items, "max_length": max_length, "hidden_size": hidden_size, "num_blocks": num_blocks}
        sizes |= {"num_heads": num_heads, "feed_forward_size": feed_forward_size, "time_span": time_span}
        _check(sizes, {"attention": (attention, Attention), "residual": (residual, Residual), "norm": (norm, Norm)})

        self.num_items, self.max_length, self.streams = num_items, max_length, streams if residual == "mhc" else None
        self.activation_checkpointing = activation_checkpointing
        self._real: Tensor | None = None
        self.items = nn.Embedding(num_items + 1, hidden_size, padding_idx=0)
        self.positions = nn.Embedding(max_length, hidden_size) if attention == "standard" else None
        self.time_tables = None
        if attention == "time_interval":
            self.time_tables = TimeTables(max_length, time_span, hidden_size, num_heads, dropout)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList()
        for _ in range(num_blocks):
            attend = TimeIntervalAttention if attention == "time_interval" else StandardAttention
            functions = attend(hidden_size, num_heads, dropout), FeedForward(hidden_size, feed_forward_size, dropout)
            residuals = (
                ManifoldHyperConnection(hidden_size, streams, sinkhorn_iterations)
                if residual == "mhc"
                else PlainResidual()
                for _ in functions
            )
            self.blocks.append(
                Block(*(Sublayer(*pair, hidden_size, dropout, norm) for pair in zip(functions, residuals)))
            )
        self.norm = nn.LayerNorm(hidden_size)
        self.output = None if tie_output else nn.Parameter(torch.empty(num_items, hidden_size))
        self._initialise()

    @property
    def output_weight(self) -> Tensor:
        """[V, C], row i - 1 belongs to item i."""
        return self.items.weight[1:] if self.output is None else self.output

    @property
    def collect_diagnostics(self) -> bool:
        """Whether forward passes keep what diagnostics() needs; costs little, and nothing when off."""
        return any(connection.collect for connection in self._connections())

    @collect_diagnostics.setter
    def collect_diagnostics(self, collect: bool) -> None:
        for connection in self._connections():
            connection.collect = collect

    def diagnostics(self) -> dict[str, Tensor]:
        """Figures of the hyper-connections in the last forward pass that collected (see diagnose); {} for plain."""
        return {} if self._real is None else diagnose(self._connections(), self._real)

    def forward(self, history: History, last_only: bool = False) -> Tensor:
        """States [B, L, C] after the last norm; those of padded positions are finite and mean nothing.

        With ``last_only`` the states [B, 1, C] of the last events, which cost less: the last block computes what it
        needs for them. A row without events has the state of its first position.
        """
        length = history.items.shape[1]
        if length > self.max_length:
            raise ValueError(
                f"a history of {length} events is longer than max_length {self.max_length}: keep the last ones"
            )
        steps = torch.arange(length, device=history.items.device)
        if self.collect_diagnostics:
            self._real = None if last_only else (steps < history.lengths.unsqueeze(1)).flatten()
        places = ((self.max_length - history.lengths).unsqueeze(1) + steps).clamp_max(self.max_length - 1)
        # Item vectors are small, for the sake of the scores' scale; as input they are as large as a layer's output.
        x = self.items(history.items) * math.sqrt(self.items.embedding_dim)
        if self.positions is not None:
            x = x + self.positions(places)
        context = None if self.time_tables is None else self.time_tables(places, history.times, history.time_scale)
        state = self.dropout(x)
        if self.streams is not None:
            state = state.unsqueeze(-2).repeat(1, 1, self.streams, 1)
        last = (history.lengths - 1).clamp_min(0) if last_only else None
        for number, block in enumerate(self.blocks, 1):
            if last is not None and number == len(self.blocks):
                state = block(state, context, last)
            elif self.activation_checkpointing and self.training:
                state = checkpoint(block, state, context, use_reentrant=False, preserve_rng_state=True)
            else:
                state = block(state, context)
        return self.norm(state if self.streams is None else state.mean(-2))

    def scores(self, states: Tensor) -> Tensor:
        """[N, C] -> [N, V + 1] float32; column j is item j, column 0 is -inf."""
        with torch.autocast(states.device.type, enabled=False):
            return F.pad(states.float() @ self.output_weight.float().T, (1, 0), value=-torch.inf)

    def _connections(self) -> list[ManifoldHyperConnection]:
        return [module for module in self.modules() if isinstance(module, ManifoldHyperConnection)]

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.xavier_normal_(module.weight)
        # A normed state has length sqrt(C): the first scores have a deviation of 0.02 sqrt(C), so training starts from
        # nearly equal probabilities.
        for weight in (self.items.weight, self.output):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)
        with torch.no_grad():
            self.items.weight[0] = 0


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual connection."""

    def __init__(self, attention: "Sublayer", feed_forward: "Sublayer") -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def forward(self, state: Tensor, context: TimeContext | None, last: Tensor | None = None) -> Tensor:
        """state [B, L, C] or [B, L, n, C] -> the same shape; with ``last``, [B], at those positions alone: L is 1."""
        return self.feed_forward(self.attention(state, context, last=last))


class Sublayer(nn.Module):
    """A function of [B, L, C] with its norm, dropout and residual connection."""

    def __init__(self, function: nn.Module, residual: nn.Module, hidden_size: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.function, self.residual = function, residual
        self.norm, self.dropout = nn.LayerNorm(hidden_size), Dropout(dropout)
        self.pre = norm == "pre"

    def forward(self, state: Tensor, *context: TimeContext | None, last: Tensor | None = None) -> Tensor:
        """With ``last`` at those positions alone, which is for attention."""
        where = () if last is None else (last,)

        def branch(x: Tensor) -> Tensor:
            return self.dropout(self.function(self.norm(x) if self.pre else x, *context, *where))

        state = self.residual(state, branch, *where)
        return state if self.pre else self.norm(state)


class FeedForward(nn.Module):
    """Two layers at each position with a ReLU between them (Kang and McAuley, ICDM 2018, eq. 5)."""

    def __init__(self, hidden_size: int, feed_forward_size: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(hidden_size, feed_forward_size), nn.Linear(feed_forward_size, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x))))


def _check(sizes: dict[str, int], choices: dict[str, tuple[str, object]]) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if sizes["hidden_size"] % sizes["num_heads"]:
        raise ValueError(f"hidden_size {sizes['hidden_size']} is not a multiple of num_heads {sizes['num_heads']}")
    for name, (choice, choices_type) in choices.items():
        if choice not in get_args(choices_type):
            raise ValueError(f"{name} must be one of {', '.join(get_args(choices_type))}, got {choice!r}")
