"""Scores the next item by an encoder, whose item vectors may include features."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from datamodules.recommender.batch import History
from engine.distributed.row_shards import is_sharded, look_up
from engine.optim.row_table import RowTable
from lightning_modules.recommender.features.feature_encoder import FeatureEncoder
from lightning_modules.recommender.item_scores import DotProductScores, ShardedScores
from lightning_modules.recommender.networks.last_position import encode_last_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.sharded_scores import ShardedDotProductScores


class NextItemScores:
    """Computes the item vectors once for all batches of an evaluation or a prediction.

    Args:
        encoder: encoder of histories.
        features: features of the items; None: items have their own vectors alone.
        row_tables: the items' own vectors, if they are trained by rows.
    """

    def __init__(
        self, encoder: SequenceEncoder, features: FeatureEncoder | None, row_tables: Sequence[RowTable] = ()
    ) -> None:
        self.encoder, self.features, self._row_tables = encoder, features, row_tables
        self._vectors: Tensor | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether ranks hold different item vectors, so that every use of the scores is a collective."""
        return any(is_sharded(table.weight) for table in self._row_tables)

    def forget(self) -> None:
        """Forget the item vectors. Call it after weights have changed."""
        self._vectors = None

    def __call__(self, history: History, num_items: int | None = None) -> DotProductScores | ShardedScores:
        """Return the scores of N items for histories of B users, which are computed block by block where they are read.

        Args:
            history: the histories.
            num_items: N, to skip items that occur in no interaction; None: all recommendable items.
        """
        if self.is_sharded:
            return self._sharded_scores(history, self._row_tables[0].weight)
        if self.features is None:
            return DotProductScores(encode_last_position(self.encoder, history), self.encoder.output_weight)
        # Computed once for an evaluation: sums over all features of all items take longer than a batch.
        if self._vectors is None:
            self._vectors = self.features.item_vectors(self.encoder.items.weight)
        states = encode_last_position(partial(self.encoder, item_vectors=self._vectors), history)
        return DotProductScores(states, self._vectors[1 : None if num_items is None else num_items + 1])

    def _sharded_scores(self, history: History, table: Tensor) -> ShardedDotProductScores:
        # Distinct items only: each row is fetched from the rank that has it.
        items = torch.cat([history.items.new_zeros(1), history.items.flatten()])  # index 0 is padding
        items, numbers = torch.unique(items, return_inverse=True)
        encoder = partial(self.encoder, item_vectors=look_up(table, items))
        states = encode_last_position(encoder, history._replace(items=numbers[1:].view_as(history.items)))
        return ShardedDotProductScores(states, table)
