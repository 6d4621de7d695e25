"""Causal self-attention of the sequence encoder: standard."""

from torch import Tensor, nn
from torch.nn import functional as F


class StandardAttention(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.projection = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, context: None = None) -> Tensor:
        query, key, value = split_heads(self.projection(x), 3 * self.num_heads).chunk(3, 1)
        mixed = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        return self.output(mixed.transpose(1, 2).flatten(2))


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, L, H * D] -> [B, H, L, D] without a copy."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
