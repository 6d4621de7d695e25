"""Names the kinds of layers that a sequence encoder can have, initializes their weights, and checks its settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from engine.number_check import check_numbers
from lightning_modules.recommender.networks.attention.fused_pointwise_attention import PointwiseAttentionLayer
from lightning_modules.recommender.networks.attention.kinds import Attention, reads_times
from lightning_modules.recommender.networks.blocks import FeedForward, SwiGLU
from lightning_modules.recommender.networks.gru import NAME, check_gru_settings
from lightning_modules.recommender.networks.inputs.event_features import EventFeatureSizes
from lightning_modules.recommender.networks.time_buckets import TimeBuckets

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
_SIZES = ("hidden_size", "num_blocks", "num_heads", "feed_forward_size", "time_span")


@dataclass(frozen=True)
class ArchitectureSettings:
    """Settings of a sequence encoder, which do not depend on the items.

    Args:
        attention: `standard`, `time_interval`, `hstu`, `fuxi` or `gru`.
        residual: `plain`: x + F(x); `gated`: x + F(x) * sigmoid(W x), as in LiGR; `mhc`; or `gated_mhc`,
            which is both.
        norm: `pre`: x + F(norm(x)); `post`: norm(x + F(x)), for each stream. A final norm follows in both.
        hidden_size: width C, a multiple of num_heads.
        num_blocks: number of blocks.
        num_heads: number of attention heads.
        feed_forward: `relu` as in SASRec, `swiglu` as in LiGR, or `none`: attention alone, as in HSTU.
        feed_forward_size: inner width of the feed-forward network; None is hidden_size, as in SASRec.
        dropout: rate at the input, on attention weights, after attention, inside and after the feed-forward network.
        time_span: largest distinct interval of linear buckets, in units of the user's time scale.
        time_buckets: `linear`: units of the user's time scale; `log`: logarithmic buckets of seconds.
        request_time: count a position's intervals from the time of the next event, `History.request_time` at the last
            position.
        streams: number of streams of `mhc` and `gated_mhc`.
        sinkhorn_iterations: Sinkhorn-Knopp iterations of `mhc` and `gated_mhc`.
        tie_output: score with the input's item vectors; otherwise with separate vectors.
        activation_checkpointing: keep only the states between blocks in training, and recompute the others.
        event_features: sizes of the features of events, whose vectors are added to item vectors; None: no features.
    """

    attention: Attention = "standard"
    residual: Residual = "plain"
    norm: Norm = "pre"
    hidden_size: int = 64
    num_blocks: int = 2
    num_heads: int = 1
    feed_forward: FeedForwardKind = "relu"
    feed_forward_size: int | None = None
    dropout: float = 0.2
    time_span: int = 256
    time_buckets: TimeBuckets = "linear"
    request_time: bool = False
    streams: int = 4
    sinkhorn_iterations: int = 20
    tie_output: bool = True
    activation_checkpointing: bool = False
    event_features: EventFeatureSizes | None = None

    @property
    def inner_size(self) -> int:
        """Inner width of the feed-forward network."""
        return self.hidden_size if self.feed_forward_size is None else self.feed_forward_size

    def content(self) -> dict[str, Any]:
        """Return the settings as checkpoints and exports keep them: without `event_features` if there are none."""
        return {name: value for name, value in vars(self).items() if name != "event_features" or value is not None}


def check_architecture(settings: ArchitectureSettings, prefix: str = "") -> None:
    """Check the settings of an encoder.

    Args:
        settings: settings of the encoder.
        prefix: begins the names of the settings in the message.

    Raises:
        ValueError: a setting is none of its values, does not suit another setting or has no effect.
    """
    values = vars(settings)
    check_numbers(prefix, {name: values[name] for name in _SIZES}, at_least=1)
    for name, kinds in _KINDS.items():
        if values[name] not in get_args(kinds):
            raise ValueError(f"{prefix}{name} must be one of {', '.join(get_args(kinds))}, got {values[name]!r}")
    hidden_size, num_heads, attention = settings.hidden_size, settings.num_heads, settings.attention
    if hidden_size % num_heads:
        raise ValueError(f"{prefix}hidden_size {hidden_size} is not a multiple of {prefix}num_heads {num_heads}")
    if attention == NAME:
        check_gru_settings(values, prefix)
    if settings.request_time and not reads_times(attention):
        raise ValueError(
            f"{prefix}request_time: found true, and {prefix}attention {attention} reads no times; set another attention"
        )


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
