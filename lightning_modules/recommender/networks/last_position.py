"""Encodes the state at a history's last event, which is all that ranking needs, without the other states."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.recommender.batch import History
from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations
from lightning_modules.recommender.networks.attention.fused_pointwise_attention import Biases

_MAX_GROUPS = 8
_POSITIONS_PER_GROUP = 1024
"""A forward pass has a fixed cost of about 200 positions; a group pays off from about this many, padding included."""


class LastPositionEncoder(Protocol):
    """An encoder that can compute the last states only, such as SequenceEncoder."""

    def __call__(self, history: History, last_only: bool = False) -> Tensor:
        """Return states [B, L, C], or [B, 1, C] with `last_only`."""


def encode_last_position(encoder: LastPositionEncoder, history: History) -> Tensor:
    """Return the state [B, C] at each row's last event. It is finite but meaningless for a row without events.

    On a CPU, padding costs time, so rows of similar length are computed in groups. Elsewhere one pass is faster. Ranks
    that share the weights need the same number of passes; sharding is for GPUs only.
    """
    batch_size, length = history.items.shape
    on_cpu = history.items.device.type == "cpu"
    groups = min(_MAX_GROUPS, batch_size, batch_size * length // _POSITIONS_PER_GROUP) if on_cpu else 1
    if groups <= 1:
        return encoder(history, last_only=True)[:, 0]
    order = history.lengths.argsort()  # groups of similar length, each padded to its own longest row
    states = []
    for rows in order.tensor_split(groups):
        longest = max(int(history.lengths[rows[-1]]), 1)
        group = History(
            items=history.items[rows, :longest],
            times=history.times[rows, :longest],
            lengths=history.lengths[rows],
            time_scale=history.time_scale[rows],
            request_time=None if history.request_time is None else history.request_time[rows],
            event_codes=None if history.event_codes is None else history.event_codes[rows, :longest],
            event_numbers=None if history.event_numbers is None else history.event_numbers[rows, :longest],
        )
        states.append(encoder(group, last_only=True)[:, 0])
    return torch.cat(states)[order.argsort()]  # back in the order of the rows


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
        # Products with all T + 1 relation keys, then a look-up for each key, avoid a tensor [L, L, D].
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


def select_position(states: Tensor, last: Tensor) -> Tensor:
    """Select one position of each row: [B, L, ...] and [B] -> [B, 1, ...]."""
    return states[torch.arange(len(last), device=last.device), last].unsqueeze(1)
