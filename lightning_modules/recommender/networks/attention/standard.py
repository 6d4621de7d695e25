"""Implements causal self-attention with a softmax (SASRec), and what the layers of attention share.

It needs no mask for padding: rows are padded on the right, so no real position attends to padding. The outputs at
padded positions are meaningless.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.recommender.networks.attention.fused_causal_attention import causal_attention
from lightning_modules.recommender.networks.attention.last_query import last_attention
from lightning_modules.recommender.networks.dropout_keys import KeyedDropoutLayer
from lightning_modules.recommender.networks.last_position import select_position


class MultiHeadAttention(KeyedDropoutLayer):
    """Base of layers of self-attention with a softmax: the projections of queries, keys and values and of the output.

    Args:
        hidden_size: width C.
        num_heads: number of attention heads.
        dropout: rate of dropout on attention weights.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.projection = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)


class StandardAttention(MultiHeadAttention):
    """Multi-head attention (Kang and McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018)."""

    def forward(self, x: Tensor, context: None = None, last: Tensor | None = None) -> Tensor:
        """Map [B, L, C] to [B, L, C], or to [B, 1, C] at the positions `last`, [B]."""
        query, key, value = (split_heads(part, self.num_heads) for part in project(self.projection, x, last))
        dropout = self.dropout if self.training else 0.0
        if last is not None:
            mixed = last_attention(query, key, value, last, dropout)
        elif dropout and x.device.type == "cpu":
            # torch has no fused CPU kernel with dropout; its fallback writes the whole matrix several times.
            mixed = causal_attention(query, key, value, dropout, None, self.row_keys())
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.output(join_heads(mixed))


def project(projection: nn.Linear, x: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value [B, L, C]; with `last` the query is [B, 1, C], of those positions."""
    if last is None:
        query, key, value = projection(x).chunk(3, -1)
        return query, key, value
    width = x.shape[-1]
    # The weight's rows are query, key and value, in this order. Keys and values are needed at all positions.
    query = F.linear(select_position(x, last), projection.weight[:width], projection.bias[:width])
    key, value = F.linear(x, projection.weight[width:], projection.bias[width:]).chunk(2, -1)
    return query, key, value


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Map [B, L, H * D] to [B, H, L, D] without a copy."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Map [B, H, L, D] to [B, L, H * D]."""
    return x.transpose(1, 2).flatten(2)
