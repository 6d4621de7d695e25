"""Implements causal self-attention with the time between events (TiSASRec), like standard.py without a padding mask."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor, nn

from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations, causal_attention
from lightning_modules.recommender.networks.attention.last_query import last_attention
from lightning_modules.recommender.networks.attention.standard import (
    MultiHeadAttention,
    join_heads,
    project,
    split_heads,
)
from lightning_modules.recommender.networks.counter_dropout import Dropout
from lightning_modules.recommender.networks.time_buckets import LAST_BUCKET, TimeBuckets, time_buckets

AttentionKernel = Literal["torch", "triton"]


class TimeContext(NamedTuple):
    """Positions and times of a batch, shared by all blocks."""

    position_keys: Tensor  # [B, L, C]
    position_values: Tensor  # [B, L, C]
    relations: Relations  # intervals [B, L, L], keys and values [H, T + 1, C / H]


class TimeIntervalAttention(MultiHeadAttention):
    """Multi-head attention with positions and time intervals (Li, Wang and McAuley, WSDM 2020, eqs. 6 to 8).

    e_ij = q_i . (k_j + p^K_j + r^K_ij) / sqrt(D),  z_i = sum_j softmax_j(e_ij) (v_j + p^V_j + r^V_ij)

    The position terms are added to keys and values, and the interval terms are computed without a [B, L, L, D] tensor
    (see fused_causal_attention.py). Unlike in the paper's code, keys and values come from the same normed input as the
    queries, and there is an output projection, so that the only difference to StandardAttention is time.
    """

    attend: Callable[[Tensor, Tensor, Tensor, float, Relations | None], Tensor] = staticmethod(causal_attention)
    """Attention without dropout; an exported graph replaces it."""
    kernel: AttentionKernel = "torch"
    """Implementation on CUDA. Other devices always use `torch`."""

    def forward(self, x: Tensor, context: TimeContext, last: Tensor | None = None) -> Tensor:
        """Map [B, L, C] to [B, L, C], or to [B, 1, C] at the positions `last`, [B]."""
        query, key, value = project(self.projection, x, last)
        # q . (k + p^K) and a (v + p^V) of eq. 6: positions are added once for a key and not for each pair.
        key = key + context.position_keys.to(key.dtype)
        value = value + context.position_values.to(value.dtype)
        query, key, value = (split_heads(part, self.num_heads) for part in (query, key, value))
        dropout = self.dropout if self.training else 0.0
        if last is not None:
            mixed = last_attention(query, key, value, last, dropout, context.relations)
        elif self.kernel == "triton" and x.is_cuda:
            # Imported here, because triton is installed on machines with CUDA only.
            from lightning_modules.recommender.networks.attention.kernels.time_attention import time_interval_attention

            mixed = time_interval_attention(query, key, value, dropout, context.relations, self.row_keys())
        elif dropout:
            mixed = causal_attention(query, key, value, dropout, context.relations, self.row_keys())
        else:
            mixed = self.attend(query, key, value, dropout, context.relations)
        return self.output(join_heads(mixed))


class TimeTables(nn.Module):
    """The four tables of TiSASRec, shared by all blocks: positions and intervals, for keys and values.

    In training, dropout applies to each looked-up position, as in the paper's code. There it also applies to each of
    the L x L looked-up intervals. Here it applies to the interval tables once per step, which allows the form without
    a [B, L, L, D] tensor; attention weights have a mask for every pair in any case.

    Args:
        max_length: number of positions.
        time_span: T, the largest distinct interval, in units of the user's time scale; the tables have T + 1 rows.
        hidden_size: width C of the tables.
        num_heads: number of attention heads.
        dropout: dropout rate.
        buckets: `linear`, or `log` for logarithmic buckets of seconds, of which time_span is the last.
    """

    def __init__(
        self,
        max_length: int,
        time_span: int,
        hidden_size: int,
        num_heads: int,
        dropout: float,
        buckets: TimeBuckets = "linear",
    ) -> None:
        super().__init__()
        time_span = LAST_BUCKET if buckets == "log" else time_span
        self.num_heads, self.time_span, self.buckets = num_heads, time_span, buckets
        self.position_keys = nn.Embedding(max_length, hidden_size)
        self.position_values = nn.Embedding(max_length, hidden_size)
        self.interval_keys = nn.Embedding(time_span + 1, hidden_size)
        self.interval_values = nn.Embedding(time_span + 1, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(
        self, positions: Tensor, times: Tensor, time_scale: Tensor, query_times: Tensor | None = None
    ) -> TimeContext:
        """Look up positions [B, L] in [0, max_length) and the intervals of times.

        Args:
            positions: [B, L] int64.
            times: [B, L] int64 seconds.
            time_scale: [B] int64 seconds.
            query_times: see `time_intervals`.
        """
        keys, values = (
            self.dropout(table.weight, call, shared=True).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
            for call, table in enumerate((self.interval_keys, self.interval_values))  # [H, T + 1, D]
        )
        return TimeContext(
            self.dropout(self.position_keys(positions), 2),
            self.dropout(self.position_values(positions), 3),
            Relations(self.intervals(times, time_scale, query_times), keys, values),
        )

    def intervals(self, times: Tensor, time_scale: Tensor, query_times: Tensor | None = None) -> Tensor:
        """Return the rows of the interval tables for all pairs of events: [B, L, L] int64 in [0, time_span]."""
        if self.buckets == "log":
            return time_buckets((times if query_times is None else query_times).unsqueeze(2) - times.unsqueeze(1))
        return time_intervals(times, time_scale, self.time_span, query_times)


def time_intervals(times: Tensor, time_scale: Tensor, time_span: int, query_times: Tensor | None = None) -> Tensor:
    """Return personalized, clipped time intervals of all pairs of events (Li, Wang and McAuley, WSDM 2020, sec. 3.2).

    Times are converted to whole units of the user's scale, counted from the row's first event and rounded half up.
    The interval of two events is the distance of their units, at most `time_span`. As in the paper's code, counting
    starts at the row's first event, so an interval may differ by one unit in another window of the same history.

    Args:
        times: [B, L] int64 seconds, oldest first.
        time_scale: [B] int64 seconds per unit, at least 1.
        time_span: the largest interval, in units.
        query_times: [B, L] int64 seconds, from which the intervals of a position are counted; None: its own time.

    Returns:
        [B, L, L] int64 in [0, time_span].
    """
    units = _whole_units(times - times[:, :1], time_scale)
    query_times = times if query_times is None else query_times
    query_units = units if query_times is times else _whole_units(query_times - times[:, :1], time_scale)
    return (query_units.unsqueeze(2) - units.unsqueeze(1)).abs_().clamp_(max=time_span)


def _whole_units(elapsed: Tensor, time_scale: Tensor) -> Tensor:
    """Convert seconds [B, L] to units of the scale [B], rounded half up."""
    scale = time_scale.unsqueeze(1)
    # Integers, because float32 counts seconds exactly for half a year only. `torch.div` with a rounding mode would be
    # exported to ONNX as a division of float32; `//` is exported as a division of integers.
    units = elapsed // scale
    remainder = elapsed - units * scale
    units += remainder >= scale - remainder  # remainder >= scale / 2 without an overflow of 2 * remainder
    return units
