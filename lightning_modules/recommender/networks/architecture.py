"""Names the kinds of layers that a sequence encoder can have, creates and initializes them, and checks its settings."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from torch import nn

from engine.number_check import check_numbers
from lightning_modules.recommender.networks.attention import StandardAttention, TimeIntervalAttention
from lightning_modules.recommender.networks.blocks import FeedForward, SwiGLU
from lightning_modules.recommender.networks.fused_pointwise_attention import PointwiseAttentionLayer
from lightning_modules.recommender.networks.fuxi import FuXiAttention
from lightning_modules.recommender.networks.hstu import HSTUAttention
from lightning_modules.recommender.networks.recurrent.gru import NAME, check_gru_settings
from lightning_modules.recommender.networks.time_buckets import TimeBuckets

Attention = Literal["standard", "time_interval", "hstu", "fuxi", "gru"]
Residual = Literal["plain", "gated", "mhc", "gated_mhc"]
FeedForwardKind = Literal["relu", "swiglu", "none"]
Norm = Literal["pre", "post"]

_KINDS: Mapping[str, object] = {
    "attention": Attention,
    "residual": Residual,
    "feed_forward": FeedForwardKind,
    "norm": Norm,
    "time_buckets": TimeBuckets,
}
_SIZES = ("num_items", "max_length", "hidden_size", "num_blocks", "num_heads", "feed_forward_size", "time_span")


def reads_times(attention: Attention) -> bool:
    """Return whether attention of a kind depends on the times of events."""
    return attention not in ("standard", "gru")


def check_architecture(settings: Mapping[str, Any], prefix: str = "") -> None:
    """Check the settings of an encoder.

    Args:
        settings: arguments of SequenceEncoder; sizes may be missing.
        prefix: begins the names of the settings in the message.

    Raises:
        ValueError: a setting is none of its values, does not suit another setting or has no effect.
    """
    check_numbers(prefix, {name: settings.get(name) for name in _SIZES}, at_least=1)
    for name, kinds in _KINDS.items():
        if settings[name] not in get_args(kinds):
            raise ValueError(f"{prefix}{name} must be one of {', '.join(get_args(kinds))}, got {settings[name]!r}")
    hidden_size, num_heads, attention = settings["hidden_size"], settings["num_heads"], settings["attention"]
    if hidden_size % num_heads:
        raise ValueError(f"{prefix}hidden_size {hidden_size} is not a multiple of {prefix}num_heads {num_heads}")
    if attention == NAME:
        check_gru_settings(settings, prefix)
    if settings["request_time"] and not reads_times(attention):
        raise ValueError(
            f"{prefix}request_time: found true, and {prefix}attention {attention} reads no times; set another attention"
        )


def attention_layer(kind: Attention, hidden_size: int, num_heads: int, dropout: float, max_length: int) -> nn.Module:
    """Return a new attention layer of a kind; `gru` has none."""
    if kind == "standard":
        return StandardAttention(hidden_size, num_heads, dropout)
    if kind == "time_interval":
        return TimeIntervalAttention(hidden_size, num_heads, dropout)
    pointwise = HSTUAttention if kind == "hstu" else FuXiAttention
    return pointwise(hidden_size, num_heads, dropout, max_length)


def feed_forward_layer(kind: FeedForwardKind, hidden_size: int, inner_size: int, dropout: float) -> list[nn.Module]:
    """Return a new feed-forward layer of a kind, or an empty list for `none`."""
    if kind == "none":
        return []
    return [(SwiGLU if kind == "swiglu" else FeedForward)(hidden_size, inner_size, dropout)]


def has_own_dropout(layer: nn.Module) -> bool:
    """Return whether a layer applies dropout to its output itself, before its output projection."""
    return isinstance(layer, PointwiseAttentionLayer)


def initialize_weights(encoder: nn.Module) -> None:
    """Initialize linear layers and embeddings by Xavier's rule, and layers with a rule of their own by theirs."""
    for module in encoder.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.xavier_normal_(module.weight)
    for module in encoder.modules():  # after the layers inside them
        if isinstance(module, PointwiseAttentionLayer):
            module.reset_parameters()
