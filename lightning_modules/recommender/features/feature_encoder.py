"""Encodes items by their features: categories, numbers and a given vector such as a text embedding."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from datamodules.recommender.batch import ItemFeatureArrays
from engine.strategies.fsdp import has_sharded_weights
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

_CHUNK = 1 << 16


class FeatureEncoder(nn.Module):
    """Sum of the vectors of an item's categories and a linear map of its numbers and given vector.

    The features are buffers, which a checkpoint does not hold: a table of V items with vectors of length D has 4 V D
    bytes. What no training item has (a column's code of missing, for example) is the zero vector: it adds nothing.

    Args:
        arrays: features of item 0 (padding), 1, 2, ...
        hidden_size: width C of the vectors.
    """

    codes: Tensor
    shares: Tensor
    dense: Tensor
    trained: Tensor  # [N + 1] bool
    training_items: Tensor  # [T + 1] int64, 0 and the trained items, ascending
    training_index: Tensor  # [N + 1] int64, index of an item in `training_items`; 0 if it was not trained

    def __init__(self, arrays: ItemFeatureArrays, hidden_size: int) -> None:
        super().__init__()
        for name in ("codes", "shares", "dense", "trained"):
            self.register_buffer(name, torch.from_numpy(getattr(arrays, name)), persistent=False)
        items = torch.cat((torch.zeros(1, dtype=torch.int64), self.trained.nonzero().flatten()))
        self.register_buffer("training_items", items, persistent=False)
        self.register_buffer("training_index", self.trained.cumsum(0) * self.trained, persistent=False)
        self.categories = nn.Embedding(len(arrays.known), hidden_size)
        self.projection = nn.Linear(arrays.dense.shape[1], hidden_size, bias=False) if arrays.dense.shape[1] else None
        # The scale of an item's own vector at the start.
        nn.init.normal_(self.categories.weight, std=0.02)
        with torch.no_grad():
            # Untrained categories would keep random vectors, which new items would get.
            self.categories.weight[~torch.from_numpy(arrays.known)] = 0
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=0.02)

    @override
    def forward(self, items: Tensor) -> Tensor:
        """Return the vectors [U, C] float32 of items [U]; item 0 (padding) has a zero vector."""
        with torch.autocast(items.device.type, enabled=False):
            weight = self.categories.weight.float()
            # [U, K] codes and the weight of each; an item of several categories has shares of them.
            codes, shares = self.codes[items].long(), self.shares[items]
            vectors = F.embedding_bag(codes, weight, mode="sum", per_sample_weights=shares)
            if self.projection is not None:
                vectors = vectors + F.linear(self.dense[items], self.projection.weight.float())
        return vectors

    @torch.no_grad()
    def item_vectors(self, own: Tensor, num_items: int | None = None) -> Tensor:
        """Return the vectors [N + 1, C] float32 of all items for evaluation; row 0 is zero.

        Args:
            own: [V + 1, C] items' own vectors; those that were not trained are skipped.
            num_items: N; None: all items with features.
        """
        number = len(self.trained) if num_items is None else num_items + 1
        items = torch.arange(number, device=own.device)
        # Chunks bound the memory of the looked-up codes and numbers.
        vectors = torch.cat([self(part) for part in items.split(_CHUNK)])
        count = min(number, len(own))
        vectors[:count] += own[:count].float() * self.trained[:count, None]
        return vectors


def feature_encoder(arrays: ItemFeatureArrays | None, encoder: SequenceEncoder) -> FeatureEncoder | None:
    """Return the features for an encoder; None without features.

    Raises:
        ValueError: the encoder scores with vectors of their own, to which no features would be added.
    """
    if arrays is None:
        return None
    if encoder.output is not None:
        raise ValueError(
            "data.init_args.item_features with model.init_args.tie_output false: the separate vectors of the scores "
            "have no features. Use tie_output true, or remove item_features"
        )
    return FeatureEncoder(arrays, encoder.items.embedding_dim)


def check_strategy_of_features(arrays: ItemFeatureArrays | None, strategy: object) -> None:
    """Raise ValueError if there are features and the strategy shards the weights."""
    if arrays is not None and has_sharded_weights(strategy):
        raise ValueError(
            f"data.init_args.item_features with trainer.strategy {type(strategy).__name__}: each rank adds features to "
            "whole item vectors, of which it would hold a shard. Use strategy ddp, or remove item_features"
        )
