"""Scores of the next item by an encoder, whose item vectors may include features."""

from functools import partial

from torch import Tensor

from datamodules.recommender.batch import History
from lightning_modules.recommender.features.feature_encoder import FeatureEncoder
from lightning_modules.recommender.item_scores import ItemScores
from lightning_modules.recommender.networks.last_position import encode_last_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


class NextItemScores:
    """Computes the item vectors once for all batches of an evaluation or a prediction.

    Args:
        encoder: encoder of histories.
        features: features of the items; None: items have their own vectors alone.
    """

    def __init__(self, encoder: SequenceEncoder, features: FeatureEncoder | None) -> None:
        self.encoder, self.features = encoder, features
        self._vectors: Tensor | None = None

    def forget(self) -> None:
        """Forget the item vectors. Call it after weights have changed."""
        self._vectors = None

    def __call__(self, history: History, num_items: int | None = None) -> ItemScores:
        """Return the scores of N items for histories of B users, which are computed block by block where they are read.

        Args:
            history: the histories.
            num_items: N, to skip items that occur in no interaction; None: all recommendable items.
        """
        if self.features is None:
            return ItemScores(encode_last_position(self.encoder, history), self.encoder.output_weight)
        if self._vectors is None:
            self._vectors = self.features.item_vectors(self.encoder.items.weight)
        states = encode_last_position(partial(self.encoder, item_vectors=self._vectors), history)
        return ItemScores(states, self._vectors[1 : None if num_items is None else num_items + 1])
