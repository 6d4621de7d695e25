"""The sequence encoder: SASRec and TiSASRec, each with a plain residual or with hyper-connections."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from datamodules.recommender.batch import History
from lightning_modules.recommender.attention import StandardAttention
from lightning_modules.recommender.dropout import Dropout
from lightning_modules.recommender.hyper_connections import PlainResidual

Attention = Literal["standard", "time_interval"]
Residual = Literal["plain", "mhc"]
Norm = Literal["pre", "post"]


class SequenceEncoder(nn.Module):
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
        if attention != "standard" or residual != "plain":
            raise ValueError(f"attention {attention} with residual {residual} is not available in this version")
        super().__init__()
        self.num_items, self.max_length = num_items, max_length
        self.activation_checkpointing = activation_checkpointing
        self.items = nn.Embedding(num_items + 1, hidden_size, padding_idx=0)
        self.positions = nn.Embedding(max_length, hidden_size)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(hidden_size, num_heads, feed_forward_size or hidden_size, dropout, norm) for _ in range(num_blocks)
        )
        self.norm = nn.LayerNorm(hidden_size)
        self.output = None if tie_output else nn.Parameter(torch.empty(num_items, hidden_size))
        self._initialise()

    @property
    def output_weight(self) -> Tensor:
        return self.items.weight[1:] if self.output is None else self.output

    def forward(self, history: History) -> Tensor:
        length = history.items.shape[1]
        x = self.items(history.items) * math.sqrt(self.items.embedding_dim)
        offsets = (self.max_length - history.lengths).unsqueeze(1)
        places = offsets + torch.arange(length, device=offsets.device)
        x = x + self.positions(places.clamp_max(self.max_length - 1))
        state = self.dropout(x)
        for block in self.blocks:
            if self.activation_checkpointing and self.training:
                state = checkpoint(block, state, use_reentrant=False, preserve_rng_state=True)
            else:
                state = block(state)
        return self.norm(state)

    def scores(self, states: Tensor) -> Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return F.pad(states.float() @ self.output_weight.float().T, (1, 0), value=-torch.inf)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.items.weight, std=0.02)
        with torch.no_grad():
            self.items.weight[0] = 0
        nn.init.xavier_normal_(self.positions.weight)
        if self.output is not None:
            nn.init.normal_(self.output, std=0.02)


class Block(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int, feed_forward_size: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.attention = Sublayer(StandardAttention(hidden_size, num_heads, dropout), hidden_size, dropout, norm)
        self.feed_forward = Sublayer(FeedForward(hidden_size, feed_forward_size, dropout), hidden_size, dropout, norm)

    def forward(self, state: Tensor) -> Tensor:
        return self.feed_forward(self.attention(state))


class Sublayer(nn.Module):
    def __init__(self, function: nn.Module, hidden_size: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.function, self.norm, self.dropout = function, nn.LayerNorm(hidden_size), Dropout(dropout)
        self.residual = PlainResidual()
        self.pre = norm == "pre"

    def forward(self, state: Tensor, *context: Tensor) -> Tensor:
        if self.pre:
            return self.residual(state, lambda x: self.dropout(self.function(self.norm(x), *context)))
        return self.norm(self.residual(state, lambda x: self.dropout(self.function(x, *context))))


class FeedForward(nn.Module):
    """Two layers at each position, with a ReLU between them."""

    def __init__(self, hidden_size: int, feed_forward_size: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(hidden_size, feed_forward_size), nn.Linear(feed_forward_size, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x))))
