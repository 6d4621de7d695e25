"""Computes HSTU's causal attention: a SiLU of each score in place of the softmax, and biases for distance and time.

`z_i = sum_{j <= i} silu(q_i . k_j + p_{i - j} + t_{b_ij}) v_j` (Zhai et al., "Actions Speak Louder than Words", ICML
2024, eq. 2). Without a softmax the size of z_i grows with the number of events that matter, which shows how strong a
preference is.

As in fused_causal_attention.py, the computation is split into tiles, and forward and backward are written by hand: this
keeps the scores alone, one for each pair and head. On CUDA the gradients of the biases are summed by atomics.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lightning_modules.recommender.networks.attention.tiles import Tile, tiles
from lightning_modules.recommender.networks.counter_dropout import Dropout

_HIDDEN = -1e30
"""Bias of a later event: its SiLU and the derivative are exactly zero."""


class Biases(NamedTuple):
    """Terms that attention adds to the scores of all heads."""

    distances: Tensor  # [N]: for i - j, with N at least L
    times: Tensor  # [T + 1]: for the bucket of the time between two events
    buckets: Tensor  # [B, L, L] int64 in [0, T]


def pointwise_attention(query: Tensor, key: Tensor, value: Tensor, biases: Biases | None = None) -> Tensor:
    """Compute the sum over j <= i of `silu(q_i . k_j + p_{i - j} + t_{b_ij}) v_j`.

    Args:
        query: [B, H, L, D]. Products have its dtype; scores, their SiLU and the biases have at least float32.
        key: [B, H, L, D] of the same dtype.
        value: [B, H, L, D] of the same dtype.
        biases: terms added to the scores, or None.

    Returns:
        [B, H, L, D], differentiable once.
    """
    return _PointwiseAttention.apply(query, key, value, *(biases or (None, None, None)))


class PointwiseAttentionLayer(nn.Module):
    """Base of layers around `pointwise_attention`: the projections W1 of U, Q, V and K and W2 of the gated result.

    U gates the channels of the result, each of width C.

    Args:
        hidden_size: width C.
        num_heads: number of attention heads.
        dropout: rate of dropout before W2.
        max_length: maximum number of events N.
        channels: number of channels.
    """

    attend = staticmethod(pointwise_attention)  # an exported graph replaces it

    def __init__(self, hidden_size: int, num_heads: int, dropout: float, max_length: int, channels: int) -> None:
        super().__init__()
        self.num_heads, self.max_length = num_heads, max_length
        self.projection = nn.Linear(hidden_size, (channels + 3) * hidden_size, bias=False)  # of U, Q, V and K
        self.output = nn.Linear(channels * hidden_size, hidden_size)
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw the weights that the papers' code initializes by itself: W1, and those of distances and times."""
        for weight in (self.projection.weight, *self.parameters(recurse=False)):
            nn.init.normal_(weight, std=0.02)


class _PointwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        distances: Tensor | None,
        times: Tensor | None,
        buckets: Tensor | None,
    ) -> Tensor:
        mixed = torch.empty_like(query, memory_format=torch.contiguous_format)
        saved_scores = []
        exact = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            for tile in tiles(query):
                rows, queries, keys = tile
                scores = (query[rows, :, queries] @ key[rows, :, keys].mT).to(exact)
                # A finite bias: silu(-inf) is -inf * 0, which is NaN.
                scores += scores.new_full(scores.shape[-2:], _HIDDEN).triu_(queries.start + 1)
                if distances is not None and times is not None and buckets is not None:
                    scores += distances.to(exact)[_distances(tile, query.device)]
                    scores += times.to(exact)[buckets[rows, queries, keys]].unsqueeze(1)
                saved_scores.append(scores)
                weights = F.silu(scores)
                mixed[rows, :, queries] = weights.to(value.dtype) @ value[rows, :, keys]
        ctx.save_for_backward(query, key, value, distances, times, buckets, *saved_scores)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, distances, times, buckets, *saved_scores = ctx.saved_tensors
        grad_query, grad_key, grad_value = (
            torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)
        )
        exact = torch.promote_types(query.dtype, torch.float32)
        grad_biases = [torch.zeros_like(bias, dtype=exact) for bias in (distances, times) if bias is not None]
        for scores, tile in zip(saved_scores, tiles(query), strict=True):
            rows, queries, keys = tile
            q, k, g = query[rows, :, queries], key[rows, :, keys], grad[rows, :, queries]
            gates = scores.sigmoid()  # recomputed, as the forward pass keeps only the scores
            weights = scores * gates
            grad_value[rows, :, keys] += weights.to(g.dtype).mT @ g
            # d silu(s) / d s = sigmoid(s) + silu(s) (1 - sigmoid(s))
            slopes = weights.addcmul_(weights, gates, value=-1).add_(gates)
            grad_scores = (g @ value[rows, :, keys].mT).to(exact).mul_(slopes)
            if grad_biases:
                grad_pairs = grad_scores.sum(1)  # all heads share the biases
                between, near = _distances(tile, query.device), buckets[rows, queries, keys]
                grad_biases[0].index_add_(0, between.flatten(), grad_pairs.sum(0).flatten())
                by_bucket = grad_pairs.new_zeros(*grad_pairs.shape[:-1], len(times)).scatter_add_(-1, near, grad_pairs)
                grad_biases[1] += by_bucket.sum((0, 1))
            narrow = grad_scores.to(q.dtype)
            grad_query[rows, :, queries] = narrow @ k
            grad_key[rows, :, keys] += narrow.mT @ q
        bias_grads: list[Tensor | None] = [part.to(distances.dtype) for part in grad_biases]
        return grad_query, grad_key, grad_value, *(bias_grads or [None, None]), None


def _distances(tile: Tile, device: torch.device) -> Tensor:
    """Return how many events each query of a tile is after each key, 0 if before: [queries, keys] int64."""
    queries = torch.arange(tile.queries.start, tile.queries.stop, device=device)
    return (queries.unsqueeze(1) - torch.arange(tile.keys.stop, device=device)).clamp_min_(0)
