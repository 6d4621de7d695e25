"""Implements HSTU, the hierarchical sequential transduction unit, in place of attention with a softmax.

Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for Generative
Recommendations", ICML 2024 (arXiv 2402.17152).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.recommender.networks.attention.fused_pointwise_attention import Biases, PointwiseAttentionLayer
from lightning_modules.recommender.networks.attention.last_query import last_pointwise_attention
from lightning_modules.recommender.networks.attention.standard import join_heads, split_heads
from lightning_modules.recommender.networks.last_position import select_position
from lightning_modules.recommender.networks.time_buckets import LAST_BUCKET

_EPSILON = 1e-6  # of the norm, as in the paper's code


class HSTUAttention(PointwiseAttentionLayer):
    """Pointwise attention with a gate (Zhai et al., ICML 2024, eqs. 1 to 3).

    U, V, Q, K = split(silu(W1 x));  A V = silu(Q K^T + rab^p + rab^t) V / N;  y = W2 (norm(A V) * U)

    The biases rab^p and rab^t depend on the number of events and the logarithmic bucket of the time between two events;
    all heads share them. As in the paper's code, N is the maximum length, the norm is a LayerNorm over all heads
    without parameters, dropout is before W2 and not on the weights, and W1 and the biases start with a standard
    deviation of 0.02. The paper's layer has no feed-forward network after it.

    Args:
        hidden_size: width C.
        num_heads: number of attention heads.
        dropout: rate of dropout before W2.
        max_length: maximum number of events N.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float, max_length: int) -> None:
        super().__init__(hidden_size, num_heads, dropout, max_length, channels=1)
        self.distance_bias = nn.Parameter(torch.empty(max_length))
        self.time_bias = nn.Parameter(torch.empty(LAST_BUCKET + 1))
        self.reset_parameters()

    def forward(self, x: Tensor, context: Tensor, last: Tensor | None = None) -> Tensor:
        """Map [B, L, C] to [B, L, C], or to [B, 1, C] at the positions `last`, [B].

        `context` [B, L, L] int64 has the bucket of the time between each query and key.
        """
        gate, query, value, key = self._project(x, last)  # [B, L, C] each
        query, key, value = (split_heads(part, self.num_heads) for part in (query, key, value))
        biases = Biases(self.distance_bias, self.time_bias, context)
        if last is None:
            mixed = self.attend(query, key, value, biases)
        else:
            mixed = last_pointwise_attention(query, key, value, last, biases)
        with torch.autocast(x.device.type, enabled=False):
            # In half precision the mean over N may be too small for the norm.
            exact = join_heads(mixed).to(torch.promote_types(mixed.dtype, torch.float32)) / self.max_length
            normed = F.layer_norm(exact, exact.shape[-1:], eps=_EPSILON)
        return self.output(self.dropout(gate * normed.to(gate.dtype)))

    def _project(self, x: Tensor, last: Tensor | None) -> tuple[Tensor, ...]:
        """Return U, Q, V and K, [B, L, C]; with `last` U and Q are [B, 1, C], of those positions."""
        if last is None:
            return F.silu(self.projection(x)).chunk(4, -1)
        # U and Q are needed at the last positions only, V and K at all.
        query_weight, key_weight = self.projection.weight.chunk(2)
        gate_and_query = F.silu(F.linear(select_position(x, last), query_weight)).chunk(2, -1)
        return *gate_and_query, *F.silu(F.linear(x, key_weight)).chunk(2, -1)
