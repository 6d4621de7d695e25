"""Attention of one query of each row: what the last block needs where only a row's last state is asked for."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_modules.recommender.causal_attention import Relations


def last_attention(
    query: Tensor, key: Tensor, value: Tensor, last: Tensor, dropout: float = 0.0, relations: Relations | None = None
) -> Tensor:
    """As ``causal_attention`` at one position of each row, which sees those up to itself.

    Args:
        query: [B, H, 1, D] of the position.
        key, value: [B, H, L, D] of all positions.
        last: [B] int64, the position.
        dropout, relations: see ``causal_attention``.

    Returns:
        [B, H, 1, D]
    """
    query = query * query.shape[-1] ** -0.5
    scores = query @ key.mT
    near = None
    if relations is not None:
        near = at(relations.intervals, last).unsqueeze(1).expand(-1, query.shape[1], -1, -1)
        scores = scores + (query @ relations.keys.to(query.dtype).mT).gather(-1, near)
    later = torch.arange(key.shape[-2], device=last.device) > last[:, None, None, None]
    exact = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1, dtype=exact)
    if dropout:
        weights = F.dropout(weights, dropout)
    mixed = weights.to(value.dtype) @ value
    if relations is not None and near is not None:
        mass = weights.new_zeros(*weights.shape[:-1], relations.values.shape[1]).scatter_add_(-1, near, weights)
        mixed = mixed + mass.to(value.dtype) @ relations.values.to(value.dtype)
    return mixed


def at(states: Tensor, last: Tensor) -> Tensor:
    """One position of each row: [B, L, ...] and [B] -> [B, 1, ...]."""
    return states[torch.arange(len(last), device=last.device), last].unsqueeze(1)
