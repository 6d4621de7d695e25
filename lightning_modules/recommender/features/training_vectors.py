"""Selects the item vectors of a micro-batch: the whole table, the rows that the batch uses, or sums with features."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from datamodules.recommender.batch import TrainBatch
from engine.determinism.stateless_rng import global_seed
from engine.optim.row_table import RowTable
from lightning_modules.recommender.features.feature_encoder import FeatureEncoder
from lightning_modules.recommender.features.item_dropout import keeps_own_vector
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.sparse_item_rows import gather_item_rows, renumber_items, used_items


class TrainingVectors:
    """Item vectors with which a training step encodes histories and scores items.

    Args:
        encoder: encoder that holds the items' own vectors.
        features: features of the items; None: items have their own vectors alone.
        row_tables: the own vectors, if they are trained by rows.
        all_items: whether the loss is over all items, or over the items of the batch.
        item_dropout: with features, probability that an item has no vector of its own in a step.
    """

    def __init__(
        self,
        encoder: SequenceEncoder,
        features: FeatureEncoder | None,
        row_tables: Sequence[RowTable],
        all_items: bool,
        item_dropout: float,
    ) -> None:
        self.encoder, self.features, self.row_tables = encoder, features, row_tables
        self.all_items, self.item_dropout = all_items, item_dropout

    @property
    def num_items(self) -> int:
        """Number of items that compete in the training: with features those that occur in it."""
        return self.encoder.num_items if self.features is None else len(self.features.training_items) - 1

    def read(self, batch: Sequence[TrainBatch], step: int) -> tuple[Sequence[TrainBatch], Tensor | None]:
        """Compute the vectors of the items that a micro-batch uses.

        Args:
            batch: parts of the micro-batch.
            step: number of completed optimizer steps.

        Returns:
            The parts, and None if their items number the whole table. Otherwise the parts with indices of vectors
            instead of items, and the vectors [U, C]. Row 0 is padding.
        """
        if self.features is None:
            return gather_item_rows(self.row_tables[0], batch) if self.row_tables else (batch, None)
        if self.all_items:
            training_index, items = self.features.training_index, self.features.training_items
            parts = renumber_items(batch, lambda numbers: training_index[numbers])
        else:
            parts, items = used_items(batch)
        own_vectors = self._own_vectors(items)
        if self.item_dropout:
            # The same mask in histories and in scores, so an item is either known or new in a step.
            own_vectors = own_vectors * keeps_own_vector(items, self.item_dropout, global_seed(), step).unsqueeze(1)
        return parts, own_vectors + self.features(items).to(own_vectors.dtype)

    def _own_vectors(self, items: Tensor) -> Tensor:
        if self.row_tables:
            return self.row_tables[0].read(items)
        # padding_idx gives row 0 no gradient, so padding stays the zero vector.
        return F.embedding(items, self.encoder.items.weight, padding_idx=0)
