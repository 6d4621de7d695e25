"""Resamples any number of features to a fixed number (Perceiver)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from lightning_modules.multimodal.flops import attention_flops, product_flops


class Resampler(nn.Module):
    """Learned queries that attend to the features: [S, N, input_size] -> [S, Q, width].

    The Perceiver resampler of Flamingo (Alayrac et al., NeurIPS 2022): in each layer the queries attend to the features
    and to each other, then pass through a feed-forward network. It adds no position embeddings, because the features of
    vision towers already encode positions.

    Args:
        input_size: width of the features.
        width: width of the queries.
        queries: number of queries, Q.
        depth: number of layers.
        heads: attention heads; their number divides the width.
    """

    def __init__(self, input_size: int, width: int, queries: int, depth: int, heads: int) -> None:
        super().__init__()
        # Each query has a length near 1, whatever the width.
        self.queries = nn.Parameter(torch.empty(queries, width).normal_(std=width**-0.5))
        self.enter = nn.Linear(input_size, width)
        self.layers = nn.ModuleList(ResamplerLayer(width, heads) for _ in range(depth))

    @override
    def forward(self, features: Tensor) -> Tensor:
        features = self.enter(features)  # [S, N, C]
        queries = self.queries.to(features.dtype).expand(len(features), -1, -1)  # [S, Q, width], the same for each view
        for layer in self.layers:
            queries = layer(queries, features)
        return queries

    def flops(self, features: int, behind_trained: bool) -> int:
        """Return the FLOPs for the features of a view, forward and backward; see flops.py."""
        queries, back = len(self.queries), behind_trained or self.queries.requires_grad
        layers: Iterable[Any] = self.layers  # ResamplerLayer, or its wrapper
        layer_flops = sum(layer.flops(features, queries, back) for layer in layers)
        return features * product_flops(self.enter, behind_trained) + layer_flops


class ResamplerLayer(nn.Module):
    """Attention of queries [S, Q, C] to features [S, N, C] and queries, then a feed-forward network; both residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"projector.heads is {heads}, which does not divide the resampler's width of {width}")
        self.heads = heads
        self.query_norm, self.feature_norm, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.ask = nn.Linear(width, width)
        self.answer = nn.Linear(width, 2 * width)
        self.leave = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    @override
    def forward(self, queries: Tensor, features: Tensor) -> Tensor:
        normed = self.query_norm(queries)
        # As in Flamingo, the queries are keys and values beside the features, so they attend to each other as well.
        context = torch.cat((self.feature_norm(features), normed), dim=1)  # [S, N + Q, C]
        keys, values = self.answer(context).chunk(2, dim=-1)
        # [S, Q or N + Q, C] -> [S, heads, Q or N + Q, C / heads]
        heads = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.ask(normed), keys, values))
        # [S, heads, Q, C / heads] -> [S, Q, C]
        attended = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        queries = queries + self.leave(attended)
        return queries + self.feed_forward(self.norm(queries))

    def flops(self, features: int, queries: int, back: bool) -> int:
        """Return the FLOPs of the layer; see flops.py. `back`: whether gradients pass to its inputs."""
        query_flops = sum(product_flops(part, back) for part in (self.ask, self.leave, self.feed_forward))
        # Keys and values are computed for features and queries, everything else for the queries alone.
        context = features + queries
        pairs = queries * context * attention_flops(self.ask.in_features, back)
        return queries * query_flops + context * product_flops(self.answer, back) + pairs
