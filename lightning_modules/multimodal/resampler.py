"""Any number of features as a fixed number of them, whatever the size of the grid."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.multimodal.flops import attention, products


class Resampler(nn.Module):
    """Learnt queries look the features up: [S, N, input_size] -> [S, Q, width].

    The Perceiver resampler of Flamingo (Alayrac et al., NeurIPS 2022): in each layer the queries attend to the features
    and to each other, then pass through a feed-forward network. Vision towers' features know their places already.

    Args:
        input_size: width of the features.
        width: of the queries.
        queries: Q.
        depth: layers.
        heads: of the attention; they share the width.
    """

    def __init__(self, input_size: int, width: int, queries: int, depth: int, heads: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.empty(queries, width).normal_(std=width**-0.5))
        self.enter = nn.Linear(input_size, width)
        self.layers = nn.ModuleList(ResamplerLayer(width, heads) for _ in range(depth))

    def forward(self, features: Tensor) -> Tensor:
        features = self.enter(features)
        queries = self.queries.to(features.dtype).expand(len(features), -1, -1)
        for layer in self.layers:
            queries = layer(queries, features)
        return queries

    def flops(self, features: int, behind_trained: bool) -> int:
        """What it takes of so many features of a view, forward and backward; see flops.py."""
        queries, back = len(self.queries), behind_trained or self.queries.requires_grad
        layers = sum(layer.flops(features, queries, back) for layer in self.layers)
        return features * products(self.enter, behind_trained) + layers


class ResamplerLayer(nn.Module):
    """Attention from queries [S, Q, C] to features [S, N, C] and queries, and a feed-forward network, both residual."""

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

    def forward(self, queries: Tensor, features: Tensor) -> Tensor:
        asked = self.query_norm(queries)
        looked_at = torch.cat((self.feature_norm(features), asked), dim=1)
        keys, values = self.answer(looked_at).chunk(2, dim=-1)
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.ask(asked), keys, values))
        found = F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        queries = queries + self.leave(found)
        return queries + self.feed_forward(self.norm(queries))

    def flops(self, features: int, queries: int, back: bool) -> int:
        """See flops.py; `back`: gradients pass through."""
        of_queries = sum(products(part, back) for part in (self.ask, self.leave, self.feed_forward))
        looked_at = features + queries
        pairs = queries * looked_at * attention(self.ask.in_features, back)
        return queries * of_queries + looked_at * products(self.answer, back) + pairs
