"""Expresses the encoder as a graph of plain operations, from a user's items to scores and the best items.

Training computes attention and Sinkhorn's iteration tile by tile, with backward passes written by hand. A graph cannot
loop over sizes that are unknown at export, so this module has untiled versions of both.
"""

import sys
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.recommender.batch import History
from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations
from lightning_modules.recommender.networks.attention.fused_pointwise_attention import Biases, PointwiseAttentionLayer
from lightning_modules.recommender.networks.attention.time_interval import TimeIntervalAttention
from lightning_modules.recommender.networks.hyper_connections import ManifoldHyperConnection
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


class ScoringGraph(nn.Module):
    """The computation of `predict`, for an exporter.

    Args:
        encoder: encoder, which is copied.
        top_k: number of best items.
    """

    def __init__(self, encoder: SequenceEncoder, top_k: int) -> None:
        super().__init__()
        self.encoder, self.top_k, self.max_length = deepcopy(encoder).eval(), top_k, encoder.max_length
        if self.encoder.recurrent is not None:
            # torch translates a GRU over all events of the input alone, not over a part of them.
            self.encoder.max_length = sys.maxsize
        for module in self.encoder.modules():
            if isinstance(module, TimeIntervalAttention):
                module.attend = causal_attention
            elif isinstance(module, PointwiseAttentionLayer):
                module.attend = pointwise_attention
            elif isinstance(module, ManifoldHyperConnection):
                module.balance = sinkhorn

    def forward(
        self,
        items: Tensor,
        times: Tensor | None = None,
        time_scale: Tensor | None = None,
        seen: Tensor | None = None,
        request_time: Tensor | None = None,
        event_codes: Tensor | None = None,
        event_numbers: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Score all items and select the best.

        Args:
            items: [B, L] items of a History of any length, padded with 0 on the right. The last max_length events
                count.
            times: [B, L] times of the events; None for attention that reads none.
            time_scale: [B] see History; None without linear time intervals.
            seen: [B, S] items to exclude from the best, padded with 0; None: exclude none.
            request_time: [B] see History; None without request time.
            event_codes: [B, L, K] see History; None without categories of events.
            event_numbers: [B, L, M] likewise, without numbers of events.

        Returns:
            Scores [B, V + 1] float32 (column 0 is -inf), and the best items [B, top_k] int64 with their scores.
        """
        # Derived from the padding, so that a caller has one input less to keep consistent.
        lengths = (items > 0).sum(1)
        times = torch.zeros_like(items) if times is None else times
        time_scale = torch.ones_like(lengths) if time_scale is None else time_scale
        features: tuple[Tensor | None, Tensor | None] = (None, None)
        if self.encoder.event_features is not None:
            codes, numbers = given_features(items, event_codes, event_numbers)
            features = self._last_events(codes, lengths), self._last_events(numbers, lengths)
        items, times = self._last_events(items, lengths), self._last_events(times, lengths)
        lengths = lengths.clamp_max(self.max_length)
        states = self.encoder(History(items, times, lengths, time_scale, request_time, *features))
        # [B, 1, C]; clamped, because a row without events would index -1.
        last = (lengths - 1).clamp_min(0)[:, None, None].expand(-1, -1, states.shape[-1])
        scores = self.encoder.scores(states.gather(1, last).squeeze(1))
        best = (scores if seen is None else scores.scatter(1, seen, -torch.inf)).topk(self.top_k)
        return scores, best.indices, best.values

    def _last_events(self, column: Tensor, lengths: Tensor) -> Tensor:
        """Return the last max_length events of each row, [B, L] or [B, L, K], because positions count from the end."""
        size = column.shape[1]
        # [B, size]: rows longer than max_length begin at their last max_length events.
        indices = (lengths - self.max_length).clamp_min(0).unsqueeze(1) + torch.arange(size, device=column.device)
        indices = indices.clamp_max(size - 1)
        if column.dim() == 3:
            indices = indices.unsqueeze(2).expand(-1, -1, column.shape[2])
        # Keep as many columns as the encoder takes; those behind a row's events are padding.
        return column.gather(1, indices)[:, : self.encoder.max_length]


def given_features(items: Tensor, event_codes: Tensor | None, event_numbers: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the codes and numbers of events; a kind that is not given has no column, [B, L, 0]."""
    codes = items.new_zeros(*items.shape, 0) if event_codes is None else event_codes
    numbers = torch.zeros(*items.shape, 0, device=items.device) if event_numbers is None else event_numbers
    return codes, numbers


def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0, relations: Relations | None = None
) -> Tensor:
    """Compute the attention of fused_causal_attention.py with operations that ONNX has, without dropout.

    Args:
        query: [B, H, L, D].
        key: [B, H, L, D].
        value: [B, H, L, D].
        dropout: not used; the signature is that of the function that is replaced.
        relations: tables of intervals and the interval of each pair, as there.
    """
    query = query * query.shape[-1] ** -0.5
    scores = query @ key.mT
    near = None
    if relations is not None:
        near = relations.intervals.unsqueeze(1).expand(-1, query.shape[1], -1, -1)
        # q . (k + r) = q . k + q . r: [B, heads, L, intervals] products, of which each pair takes its own.
        scores = scores + (query @ relations.keys.mT).gather(-1, near)
    length = query.shape[-2]
    later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    mixed = weights @ value
    if relations is not None and near is not None:
        # The same for values: weights are summed per interval first, so no [L, L, D] tensor is made.
        mass = weights.new_zeros(*weights.shape[:-1], relations.values.shape[1]).scatter_add(-1, near, weights)
        mixed = mixed + mass @ relations.values
    return mixed


def pointwise_attention(query: Tensor, key: Tensor, value: Tensor, biases: Biases | None = None) -> Tensor:
    """Compute the attention of fused_pointwise_attention.py, of [B, H, L, D] each, with operations that ONNX has."""
    steps = torch.arange(query.shape[-2], device=query.device)
    between = steps.unsqueeze(1) - steps
    scores = query @ key.mT
    if biases is not None:
        scores = scores + (biases.distances[between.clamp_min(0)] + biases.times[biases.buckets]).unsqueeze(1)
    # Masked after silu, unlike a softmax: the weight of a later event is 0 and not minus infinity.
    return F.silu(scores).masked_fill(between < 0, 0.0) @ value


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """Compute the iteration of sinkhorn.py on logits [n, n, N] with operations that ONNX has."""
    matrices = (logits - logits.amax(0, keepdim=True)).exp()
    smallest = torch.finfo(matrices.dtype).tiny
    for _ in range(iterations):
        # The columns come first, as in sinkhorn.py, so that rows sum to one up to rounding.
        for dim in (0, 1):
            matrices = matrices / matrices.sum(dim, keepdim=True).clamp_min(smallest)
    return matrices
