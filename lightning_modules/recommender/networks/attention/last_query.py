"""Computes attention of each row's last query alone: the definition of each kind, without the matrix of all pairs."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations
from lightning_modules.recommender.networks.attention.fused_pointwise_attention import Biases
from lightning_modules.recommender.networks.last_position import select_position


def last_attention(
    query: Tensor, key: Tensor, value: Tensor, last: Tensor, dropout: float = 0.0, relations: Relations | None = None
) -> Tensor:
    """Compute `causal_attention` of one query per row, which attends to the positions up to its own.

    Args:
        query: [B, H, 1, D] of the positions `last`.
        key: [B, H, L, D] of all positions.
        value: [B, H, L, D] of all positions.
        last: [B] int64, position of each row's query.
        dropout: see `causal_attention`.
        relations: see `causal_attention`.

    Returns:
        [B, H, 1, D]
    """
    # Scaling [B, H, 1, D] costs less than scaling the scores.
    query = query * query.shape[-1] ** -0.5
    scores = query @ key.mT  # [B, H, 1, L]
    intervals = None
    if relations is not None:
        intervals = select_position(relations.intervals, last).unsqueeze(1).expand(-1, query.shape[1], -1, -1)
        # Products with all T + 1 relation keys, then a gather for each key, avoid a tensor [L, L, D].
        scores = scores + (query @ relations.keys.to(query.dtype).mT).gather(-1, intervals)
    # A row's last position is a number of its own, so the causal mask is [B, 1, 1, L] and not a triangle.
    later = torch.arange(key.shape[-2], device=last.device) > last[:, None, None, None]
    exact = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1, dtype=exact)
    if dropout:
        weights = F.dropout(weights, dropout)
    mixed = weights.to(value.dtype) @ value
    if relations is not None and intervals is not None:
        # mass[..., t] is the attention to all events at interval t: [B, H, 1, T + 1].
        mass = weights.new_zeros(*weights.shape[:-1], relations.values.shape[1]).scatter_add_(-1, intervals, weights)
        mixed = mixed + mass.to(value.dtype) @ relations.values.to(value.dtype)
    return mixed


def last_pointwise_attention(
    query: Tensor, key: Tensor, value: Tensor, last: Tensor, biases: Biases | None = None
) -> Tensor:
    """Compute `pointwise_attention` of one query per row, which attends to the positions up to its own.

    Args:
        query: [B, H, 1, D] of the positions `last`.
        key: [B, H, L, D] of all positions.
        value: [B, H, L, D] of all positions.
        last: [B] int64, position of each row's query.
        biases: see `pointwise_attention`.

    Returns:
        [B, H, 1, D]
    """
    scores = query @ key.mT
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # Events from each key to the query, negative for later keys: [B, 1, 1, L].
    between = (last.unsqueeze(1) - torch.arange(key.shape[-2], device=last.device))[:, None, None]
    if biases is not None:
        scores = scores + biases.distances.to(scores.dtype)[between.clamp_min(0)]
        scores = scores + biases.times.to(scores.dtype)[select_position(biases.buckets, last).unsqueeze(1)]
    return F.silu(scores).masked_fill(between < 0, 0.0).to(value.dtype) @ value
