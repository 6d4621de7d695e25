"""Compiles the loss of a recommender's micro-batch, forward and backward, into one graph of fixed shapes.

A small recommender on a GPU waits for launches of hundreds of kernels. torch.compile fuses them, and on CUDA records
the rest as a CUDA graph that one call replays. A graph needs fixed shapes, so every micro-batch is padded to the same
number of rows and events. The code that is compiled is that of the plain step, whose masks of dropout do not depend on
padding.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import override

from datamodules.recommender.batch import TrainBatch
from engine.lightning_internals.tensors import whole_graphs
from lightning_modules.recommender.compiled_step.fixed_shape import fixed_shape
from lightning_modules.recommender.features.training_vectors import TrainingVectors
from lightning_modules.recommender.losses.next_item import NextItemLoss
from lightning_modules.recommender.networks.dropout_keys import DropoutKeys
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.training_loss import MicroBatchLoss, TrainingLoss


class CompiledTrainingLoss(TrainingLoss):
    """Loss of micro-batches that are padded to one shape, in one compiled graph.

    It equals the plain loss up to rounding. The item vectors are the whole table.

    Args:
        encoder: encodes the histories.
        vectors: item vectors of a micro-batch.
        loss: compares states and item vectors.
        dropout: whether the encoder has dropout.
        rows: function that returns the rows of a micro-batch, of which the last of an epoch may have fewer.
    """

    def __init__(
        self,
        encoder: SequenceEncoder,
        vectors: TrainingVectors,
        loss: NextItemLoss,
        dropout: bool,
        rows: Callable[[], int],
    ) -> None:
        super().__init__(encoder, vectors, loss, dropout)
        self.rows, self._is_prepared = rows, False

    @override
    def __call__(self, batch: Sequence[TrainBatch], step: int | None) -> MicroBatchLoss:
        padded = fixed_shape(batch, self.rows(), self.encoder.max_length)
        keys = self._mask_keys([padded], step)[0]
        if not self._is_prepared:
            self._prepare(padded, keys)
        # Marks a new step: CUDA graphs may then overwrite the results of the step before.
        if padded.users.is_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        with whole_graphs():
            total, real = self._compiled_sums(padded, keys)
        # A CUDA graph writes its next results into the same memory.
        total, real = total.clone(), real.clone()
        return MicroBatchLoss(total, real, {"train/real_positions": real.float() / padded.targets.numel()})

    def _prepare(self, batch: TrainBatch, keys: DropoutKeys | None) -> None:
        self._is_prepared = True
        if keys is not None:  # otherwise masks come from torch's generator, which a resumed run must find as it was
            with torch.no_grad():
                self._sums(batch, keys)  # creates tables of the masks, which torch cannot compile
        for weight in self.encoder.parameters():
            if weight.requires_grad:
                weight.register_hook(torch.clone)  # as the results, for accumulation

    @cached_property
    def _compiled_sums(self) -> Callable[[TrainBatch, DropoutKeys | None], tuple[Tensor, Tensor]]:
        mode = "reduce-overhead" if self.encoder.items.weight.is_cuda else None  # CUDA graphs
        return torch.compile(self._sums, fullgraph=True, dynamic=False, mode=mode)

    def _sums(self, batch: TrainBatch, keys: DropoutKeys | None) -> tuple[Tensor, Tensor]:
        """Return the sum of the loss over the real positions, and their number."""
        states = self.encoder(batch.history, keys=keys)
        total = self.loss.total([states], [batch], self.encoder.output_weight, self.vectors.num_items)
        return total, (batch.targets > 0).sum()
