"""Self-attention of the sequence encoder: standard (SASRec) or aware of the time between events (TiSASRec).

Both are causal and need no mask for padding: rows are padded on the right, so no real position sees a padded one.
What padded positions hold is of no meaning, and nothing is lost by computing it.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.recommender.causal_attention import Relations, causal_attention
from lightning_modules.recommender.dropout import Dropout
from lightning_modules.recommender.last_attention import at, last_attention


class StandardAttention(nn.Module):
    """Multi-head attention (Kang and McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018)."""

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.projection = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, context: None = None, last: Tensor | None = None) -> Tensor:
        """[B, L, C] -> [B, L, C], or [B, 1, C] at the positions ``last``, [B]."""
        query, key, value = (split_heads(part, self.num_heads) for part in _projected(self.projection, x, last))
        dropout = self.dropout if self.training else 0.0
        if last is not None:
            mixed = last_attention(query, key, value, last, dropout)
        elif dropout and x.device.type == "cpu":
            # On a CPU torch has no fused kernel with dropout: it would write out the whole matrix several times.
            mixed = causal_attention(query, key, value, dropout)
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.output(join_heads(mixed))


class TimeContext(NamedTuple):
    """What all blocks share of a batch's positions and times."""

    position_keys: Tensor  # [B, L, C]
    position_values: Tensor  # [B, L, C]
    relations: Relations  # intervals [B, L, L], keys and values [H, T + 1, C / H]


class TimeIntervalAttention(nn.Module):
    """Multi-head attention with positions and time intervals (Li, Wang and McAuley, WSDM 2020, eqs. 6 to 8).

    e_ij = q_i . (k_j + p^K_j + r^K_ij) / sqrt(D),  z_i = sum_j softmax_j(e_ij) (v_j + p^V_j + r^V_ij)

    The position terms are added to keys and values, and the interval terms are computed without a [B, L, L, D] tensor
    (see causal_attention.py). Unlike in the paper's code the keys and values come from the same (normed) input as the
    queries, and there is an output projection, as in StandardAttention, so that the two differ in time alone.
    """

    attend = staticmethod(causal_attention)  # an exported graph has its own

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.projection = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, context: TimeContext, last: Tensor | None = None) -> Tensor:
        """[B, L, C] -> [B, L, C], or [B, 1, C] at the positions ``last``, [B]."""
        query, key, value = _projected(self.projection, x, last)
        key = key + context.position_keys.to(key.dtype)
        value = value + context.position_values.to(value.dtype)
        query, key, value = (split_heads(part, self.num_heads) for part in (query, key, value))
        dropout = self.dropout if self.training else 0.0
        if last is not None:
            mixed = last_attention(query, key, value, last, dropout, context.relations)
        else:
            mixed = self.attend(query, key, value, dropout, context.relations)
        return self.output(join_heads(mixed))


class TimeTables(nn.Module):
    """The four tables of TiSASRec, shared by all blocks: positions and intervals, for keys and values.

    In training the looked-up positions are dropped out element by element, as in the paper's code. There each of the
    L x L looked-up interval rows has a mask of its own; here the elements of the two interval tables are dropped once
    per batch, which is what allows the cheap form (attention weights have a mask of their own for every pair anyway).

    Args:
        time_span: T, the longest interval told apart, in units of the user's time scale; the tables have T + 1 rows.
    """

    def __init__(self, max_length: int, time_span: int, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.time_span = num_heads, time_span
        self.position_keys = nn.Embedding(max_length, hidden_size)
        self.position_values = nn.Embedding(max_length, hidden_size)
        self.interval_keys = nn.Embedding(time_span + 1, hidden_size)
        self.interval_values = nn.Embedding(time_span + 1, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(self, places: Tensor, times: Tensor, time_scale: Tensor) -> TimeContext:
        """places [B, L] in [0, max_length), times [B, L] and time_scale [B] in seconds, all int64."""
        keys, values = (
            self.dropout(table.weight).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
            for table in (self.interval_keys, self.interval_values)
        )
        return TimeContext(
            self.dropout(self.position_keys(places)),
            self.dropout(self.position_values(places)),
            Relations(time_intervals(times, time_scale, self.time_span), keys, values),
        )


def time_intervals(times: Tensor, time_scale: Tensor, time_span: int) -> Tensor:
    """Personalised, clipped time intervals of all pairs of events (Li, Wang and McAuley, WSDM 2020, section 3.2).

    Times become whole units of the user's own scale, counted from the row's first event and rounded (a half up);
    the interval of two events is the distance of their units, at most ``time_span``. Counting from the row's first
    event is what the paper's code does; so the same two events may be one unit nearer or farther in another window of
    the user's events, which begins elsewhere.

    Args:
        times: [B, L] int64 seconds, oldest first.
        time_scale: [B] int64 seconds per unit, at least 1.

    Returns:
        [B, L, L] int64 in [0, time_span].
    """
    scale = time_scale.unsqueeze(1)
    elapsed = times - times[:, :1]
    # Whole numbers throughout: a float32 counts seconds exactly for half a year only.
    units = torch.div(elapsed, scale, rounding_mode="floor")
    rest = elapsed - units * scale
    units += rest >= scale - rest
    return (units.unsqueeze(2) - units.unsqueeze(1)).abs_().clamp_(max=time_span)


def _projected(projection: nn.Linear, x: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value [B, L, C]; with ``last`` the query [B, 1, C] of those positions alone."""
    if last is None:
        query, key, value = projection(x).chunk(3, -1)
        return query, key, value
    width = x.shape[-1]
    query = F.linear(at(x, last), projection.weight[:width], projection.bias[:width])
    key, value = F.linear(x, projection.weight[width:], projection.bias[width:]).chunk(2, -1)
    return query, key, value


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, L, H * D] -> [B, H, L, D] without a copy."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, H, L, D] -> [B, L, H * D]."""
    return x.transpose(1, 2).flatten(2)
