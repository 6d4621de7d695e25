"""The encoder as one graph of plain operations, from a user's items to scores and the best items.

Training computes attention and Sinkhorn's iteration tile by tile, with backward passes of their own. A graph has no
loops over sizes that it does not know, so both are said here in one piece.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from datamodules.recommender.batch import History
from lightning_modules.recommender.attention import TimeIntervalAttention
from lightning_modules.recommender.causal_attention import Relations
from lightning_modules.recommender.hyper_connections import ManifoldHyperConnection
from lightning_modules.recommender.network import SequenceEncoder


class ScoringGraph(nn.Module):
    """What `predict` does, for an exporter.

    Args:
        encoder: is copied.
        top_k: how many of the best items.
    """

    def __init__(self, encoder: SequenceEncoder, top_k: int) -> None:
        super().__init__()
        self.encoder, self.top_k = deepcopy(encoder).eval(), top_k
        for module in self.encoder.modules():
            if isinstance(module, TimeIntervalAttention):
                module.attend = causal_attention
            elif isinstance(module, ManifoldHyperConnection):
                module.balance = sinkhorn

    def forward(
        self,
        items: Tensor,
        times: Tensor | None = None,
        time_scale: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """
        Args:
            items, times: [B, L], of a History of any length, of which the last max_length events count; a row's length
                is the number of its items that are not 0.
            time_scale: [B]; like times for time intervals alone.
            seen: [B, S] items that are not recommended, padded with 0; None: every item may be.

        Returns:
            Scores [B, V + 1] float32 (column 0 is -inf), and of the best [B, top_k] their items, int64, and scores.
        """
        lengths = (items > 0).sum(1)
        times = torch.zeros_like(items) if times is None else times
        time_scale = torch.ones_like(lengths) if time_scale is None else time_scale
        items, times, lengths = self._last_events(items, times, lengths)
        states = self.encoder(History(items, times, lengths, time_scale))
        last = (lengths - 1).clamp_min(0)[:, None, None].expand(-1, -1, states.shape[-1])
        scores = self.encoder.scores(states.gather(1, last).squeeze(1))
        best = (scores if seen is None else scores.scatter(1, seen, -torch.inf)).topk(self.top_k)
        return scores, best.indices, best.values

    def _last_events(self, items: Tensor, times: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each row with its last max_length events alone: before them a graph would count places from the wrong end."""
        most = self.encoder.max_length
        places = (lengths - most).clamp_min(0).unsqueeze(1) + torch.arange(items.shape[1], device=items.device)
        places = places.clamp_max(items.shape[1] - 1)
        return items.gather(1, places)[:, :most], times.gather(1, places)[:, :most], lengths.clamp_max(most)


def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0, relations: Relations | None = None
) -> Tensor:
    """As in causal_attention.py, without dropout."""
    query = query * query.shape[-1] ** -0.5
    scores = query @ key.mT
    near = None
    if relations is not None:
        near = relations.intervals.unsqueeze(1).expand(-1, query.shape[1], -1, -1)
        scores = scores + (query @ relations.keys.mT).gather(-1, near)
    length = query.shape[-2]
    later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    mixed = weights @ value
    if relations is not None and near is not None:
        mass = weights.new_zeros(*weights.shape[:-1], relations.values.shape[1]).scatter_add(-1, near, weights)
        mixed = mixed + mass @ relations.values
    return mixed


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """As in sinkhorn.py."""
    matrices = (logits - logits.amax(0, keepdim=True)).exp()
    smallest = torch.finfo(matrices.dtype).tiny
    for _ in range(iterations):
        for dim in (0, 1):
            matrices = matrices / matrices.sum(dim, keepdim=True).clamp_min(smallest)
    return matrices
