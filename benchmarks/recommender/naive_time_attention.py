"""Peer: time-interval attention with a vector for every pair of events, [B, L, L, C], for keys and for values.

Written from the description of the method (Li, Wang and McAuley, "Time Interval Aware Self-Attention for Sequential
Recommendation", WSDM 2020, section 3), which the public codes implement directly (JiachengLi1995/TiSASRec,
pmixer/TiSASRec.pytorch): look up both interval tables for all pairs, drop out elements of the result, multiply.
The peer gets the cheaper variant where there are several: heads are views here, and copies in those codes.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from lightning_modules.recommender.networks.attention.time_interval import TimeIntervalAttention, TimeTables
from lightning_modules.recommender.networks.blocks import EncoderBlock
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


class NaiveTimeContext(NamedTuple):
    """The four looked-up tables, after dropout."""

    position_keys: Tensor  # [B, L, C]
    position_values: Tensor  # [B, L, C]
    interval_keys: Tensor  # [B, L, L, C]
    interval_values: Tensor  # [B, L, L, C]


class NaiveTimeTables(nn.Module):
    """Tables with the weights of TimeTables."""

    def __init__(self, tables: TimeTables) -> None:
        super().__init__()
        self.position_keys, self.position_values = tables.position_keys, tables.position_values
        self.interval_keys, self.interval_values = tables.interval_keys, tables.interval_values
        self.intervals, self.dropout = tables.intervals, nn.Dropout(tables.dropout.p)

    @override
    def forward(
        self, positions: Tensor, times: Tensor, time_scale: Tensor, query_times: Tensor | None = None
    ) -> NaiveTimeContext:
        intervals = self.intervals(times, time_scale, query_times)
        return NaiveTimeContext(
            self.dropout(self.position_keys(positions)),
            self.dropout(self.position_values(positions)),
            self.dropout(self.interval_keys(intervals)),
            self.dropout(self.interval_values(intervals)),
        )


class NaiveTimeAttention(nn.Module):
    """Attention with the weights of TimeIntervalAttention; without dropout the outputs are equal."""

    def __init__(self, attention: TimeIntervalAttention) -> None:
        super().__init__()
        self.projection, self.output = attention.projection, attention.output
        self.num_heads, self.dropout = attention.num_heads, nn.Dropout(attention.dropout)

    def forward(self, x: Tensor, context: NaiveTimeContext) -> Tensor:
        """Map [B, L, C] to [B, L, C]."""
        parts = (*self.projection(x).chunk(3, -1), *context)
        query, key, value, position_key, position_value, near_key, near_value = (self._split(part) for part in parts)
        # [B, H, L, L]; the last term multiplies each query with its own L interval vectors, [B, H, L, L, D].
        scores = query @ key.mT + query @ position_key.mT + (near_key @ query.unsqueeze(-1)).squeeze(-1)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        scores = (scores / math.sqrt(query.shape[-1])).masked_fill(later, -torch.inf)
        weights = self.dropout(scores.softmax(-1))
        mixed = weights @ value + weights @ position_value + (weights.unsqueeze(-2) @ near_value).squeeze(-2)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _split(self, part: Tensor) -> Tensor:
        """Reshape [B, ..., C] to [B, H, ..., D]."""
        return part.unflatten(-1, (self.num_heads, -1)).movedim(-2, 1)


def with_naive_attention(encoder: SequenceEncoder) -> SequenceEncoder:
    """Replace the attention of all blocks of a TiSASRec by the naive form, in place."""
    assert encoder.time_tables is not None, "an encoder without times"
    encoder.register_module("time_tables", NaiveTimeTables(encoder.time_tables))
    for block in encoder.blocks:
        assert isinstance(block, EncoderBlock) and isinstance(block.attention.function, TimeIntervalAttention)
        block.attention.function = NaiveTimeAttention(block.attention.function)
    return encoder
