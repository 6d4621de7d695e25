"""Implements FuXi-alpha's attention: contents, positions and times in channels of their own.

Ye et al., "FuXi-alpha: Scaling Recommendation Model with Feature Interaction Enhanced Transformer", WWW Companion 2025
(arXiv 2502.03036).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.recommender.networks.attention.fused_pointwise_attention import PointwiseAttentionLayer
from lightning_modules.recommender.networks.attention.last_query import last_pointwise_attention
from lightning_modules.recommender.networks.attention.standard import join_heads, split_heads
from lightning_modules.recommender.networks.last_position import select_position
from lightning_modules.recommender.networks.time_buckets import LAST_BUCKET

_EPSILON = 1e-6  # of the norm, as in the paper's code


class FuXiAttention(PointwiseAttentionLayer):
    """Adaptive multi-channel self-attention.

    U, V, Q, K = split(silu(W1 x));  y = W2 (norm([P V, T V, silu(Q K^T) V / N]) * U)

    HSTU adds the biases P of distances and T of times to the scores. Here each is the weights of a channel, without a
    SiLU, and U has a gate for each feature of each channel. As in the paper's code, all heads share P and T, N is the
    maximum length, the norm is an RMSNorm over all channels without parameters, dropout is before W2, and W1, P and T
    start with a standard deviation of 0.02. W2 and the residual connection after it are the first stage of the paper's
    feed-forward network; the second is a SwiGLU network.

    Args:
        hidden_size: width C.
        num_heads: number of attention heads.
        dropout: rate of dropout before W2.
        max_length: maximum number of events N.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float, max_length: int) -> None:
        super().__init__(hidden_size, num_heads, dropout, max_length, channels=3)
        self.distance_weights = nn.Parameter(torch.empty(max_length))
        self.time_weights = nn.Parameter(torch.empty(LAST_BUCKET + 1))
        self.reset_parameters()

    def forward(self, x: Tensor, context: Tensor, last: Tensor | None = None) -> Tensor:
        """Map [B, L, C] to [B, L, C], or to [B, 1, C] at the positions `last`, [B].

        `context` [B, L, L] int64 has the bucket of the time between each query and key.
        """
        width = x.shape[-1]
        # U and Q are needed at the query positions only, V and K at all.
        query_weight, key_weight = self.projection.weight.split((4 * width, 2 * width))
        query_states = x if last is None else select_position(x, last)
        gate, query = F.silu(F.linear(query_states, query_weight)).split((3 * width, width), -1)
        value, key = F.silu(F.linear(x, key_weight)).chunk(2, -1)
        q, k, v = (split_heads(part, self.num_heads) for part in (query, key, value))
        mixed = self.attend(q, k, v) if last is None else last_pointwise_attention(q, k, v, last)
        by_distance, by_time = self._channels(value, context, last)
        with torch.autocast(x.device.type, enabled=False):
            # In half precision the mean over N may be too small for the norm.
            exact = torch.promote_types(mixed.dtype, torch.float32)
            contents = join_heads(mixed).to(exact) / self.max_length
            # [B, L, 3 C]; the RMSNorm and the gate go over all three channels together.
            channels = torch.cat((by_distance.to(exact), by_time.to(exact), contents), -1)
            normed = channels * (channels.square().mean(-1, keepdim=True) + _EPSILON).rsqrt()
        return self.output(self.dropout(gate * normed.to(gate.dtype)))

    def _channels(self, value: Tensor, buckets: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return P V and T V, [B, L, C], or [B, 1, C] at the positions `last`."""
        keys = torch.arange(value.shape[1], device=value.device)
        queries = keys.unsqueeze(0) if last is None else last.unsqueeze(1)
        between = queries.unsqueeze(-1) - keys  # [1, L, L] or [B, 1, L]
        distance_weights = self.distance_weights[between.clamp_min(0)]
        buckets = buckets if last is None else select_position(buckets, last)
        # Indexing has a slow gradient, a scatter into a single row; gather has a scatter into a row for each query.
        time_weights = self.time_weights.expand(*buckets.shape[:2], -1).gather(-1, buckets)
        by_distance, by_time = (
            weights.masked_fill(between < 0, 0.0).to(value.dtype) @ value
            for weights in (distance_weights, time_weights)
        )
        return by_distance, by_time
