"""Computes the loss of a recommender's micro-batch: item vectors, states, and the sum over the next items."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.recommender.batch import TrainBatch
from engine.determinism.stateless_rng import global_seed
from lightning_modules.recommender.features.training_vectors import TrainingVectors
from lightning_modules.recommender.losses.next_item import NextItemLoss
from lightning_modules.recommender.networks.dropout_keys import DropoutKeys, dropout_keys
from lightning_modules.recommender.networks.hyper_connections import summarize
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


class MicroBatchLoss(NamedTuple):
    """Loss of a micro-batch on this rank, before the division by the positions of the global batch."""

    total: Tensor
    """Sum over the real positions."""
    real: Tensor
    """Number of real positions."""
    metrics: dict[str, Tensor]
    """Metrics to log, by name."""


class TrainingLoss:
    """Loss of micro-batches, given in parts of similar length.

    Args:
        encoder: encodes the histories.
        vectors: item vectors of a micro-batch.
        loss: compares states and item vectors.
        dropout: whether the encoder has dropout.
    """

    def __init__(self, encoder: SequenceEncoder, vectors: TrainingVectors, loss: NextItemLoss, dropout: bool) -> None:
        self.encoder, self.vectors, self.loss, self.dropout = encoder, vectors, loss, dropout

    def __call__(self, batch: Sequence[TrainBatch], step: int | None) -> MicroBatchLoss:
        """Compute the loss of a micro-batch.

        Args:
            batch: parts of the micro-batch.
            step: number of completed optimizer steps; None without a trainer.
        """
        batch, vectors = self.vectors.read(batch, step or 0)
        keys = self._mask_keys(batch, step)
        states = [
            self.encoder(part.history, item_vectors=vectors, keys=part_keys)
            for part, part_keys in zip(batch, keys, strict=True)
        ]
        # [V or U, C]: row 0 is padding, which no position may be scored against.
        weight = self.encoder.output_weight if vectors is None else vectors[1:]
        total = self.loss.total(states, batch, weight, self.vectors.num_items)
        real = torch.stack([(part.targets > 0).sum() for part in batch]).sum()
        metrics = {"train/real_positions": real.float() / sum(part.targets.numel() for part in batch)}
        if self.encoder.collect_diagnostics:
            # Of the last part, which has the longest rows, on rank 0.
            summary = summarize(self.encoder.diagnostics())
            metrics |= {f"mhc/{name}": value for name, value in summary.items()}
        return MicroBatchLoss(total, real, metrics)

    def _mask_keys(self, batch: Sequence[TrainBatch], step: int | None) -> Sequence[DropoutKeys | None]:
        """Return the keys of dropout for each part; None on a GPU, whose fused kernels draw masks themselves."""
        if not self.dropout or batch[0].users.device.type != "cpu" or step is None:
            return [None] * len(batch)
        return dropout_keys([part.users for part in batch], global_seed(), step)
