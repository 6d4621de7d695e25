"""Names the kinds of attention of an encoder, with the layer of each and what it reads besides the states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from lightning_modules.recommender.networks.attention.fused_pointwise_attention import PointwiseAttentionLayer
from lightning_modules.recommender.networks.attention.fuxi import FuXiAttention
from lightning_modules.recommender.networks.attention.hstu import HSTUAttention
from lightning_modules.recommender.networks.attention.standard import StandardAttention
from lightning_modules.recommender.networks.attention.time_interval import TimeIntervalAttention

Attention = Literal["standard", "time_interval", "hstu", "fuxi", "gru"]
"""Values of the option `attention`. `gru` is GRU4Rec, which has no attention and no entry in ATTENTION_KINDS."""


@dataclass(frozen=True)
class AttentionKind:
    """A kind of attention.

    Args:
        layer: class of the layers, a `PointwiseAttentionLayer` or one that is called without the maximum length.
        time_input: what the layers read of the times of events, the same for all blocks: `tables` is the `TimeContext`
            of `TimeTables`, `buckets` the numbers [B, L, L] of `time_buckets`; None: nothing.
        adds_positions: add learned position vectors to the input of the first block.
    """

    layer: type[nn.Module]
    time_input: Literal["tables", "buckets"] | None = None
    adds_positions: bool = True


ATTENTION_KINDS: Mapping[Attention, AttentionKind] = {
    "standard": AttentionKind(StandardAttention),
    "time_interval": AttentionKind(TimeIntervalAttention, time_input="tables", adds_positions=False),
    "hstu": AttentionKind(HSTUAttention, time_input="buckets"),
    "fuxi": AttentionKind(FuXiAttention, time_input="buckets"),
}


def reads_times(attention: Attention) -> bool:
    """Return whether an encoder with a kind of attention depends on the times of events."""
    return attention in ATTENTION_KINDS and ATTENTION_KINDS[attention].time_input is not None


def attention_layer(
    attention: Attention, hidden_size: int, num_heads: int, dropout: float, max_length: int
) -> nn.Module:
    """Return a new attention layer of a kind, which maps [B, L, C] to [B, L, C].

    Raises:
        KeyError: `gru` has no attention.
    """
    layer = ATTENTION_KINDS[attention].layer
    sizes = [max_length] if issubclass(layer, PointwiseAttentionLayer) else []
    build: Callable[..., nn.Module] = layer
    return build(hidden_size, num_heads, dropout, *sizes)
