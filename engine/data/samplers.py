"""Splits the global batches of an epoch into the micro-batches of the ranks.

A global batch has `world_size x accumulation` micro-batches. The content of a global batch does not depend on the world
size; only the share of a rank does. A run can thus resume from any position on any number of ranks and see exactly the
remaining samples, in the same global batches.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from engine.data.epoch_order import ShuffleBlocks, global_batches

PADDING_INDEX = -1
"""Index of a row without a sample. It gives a rank the same number of batches as the others and has weight zero."""


class MicroBatchRequest(NamedTuple):
    """A sampler's request for one micro-batch. It contains the epoch, so that loader workers need no state."""

    epoch: int
    indices: NDArray[np.int64]  # [b] samples or PADDING_INDEX; for a stream: positions, possibly beyond its end
    step_in_epoch: int = 0  # number of the global batch, from 0
    whole_batch: NDArray[np.int64] | None = None
    """[B] samples of the global batch, in an order that is the same on all ranks; None for a stream or an evaluation.

    A loss that compares samples of a batch can read the others here, without communication.
    """


def pad_if_empty(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices [b] of a micro-batch; one padding row if it has no sample."""
    return indices if len(indices) else np.array([PADDING_INDEX])


class TrainSampler(Sampler[MicroBatchRequest]):
    """The micro-batches of one rank. Each iteration is the next epoch.

    It counts the epochs itself. Lightning's `set_epoch` is also called for an epoch without batches, when a run that is
    limited by steps is resumed at the end of an epoch.

    Args:
        num_samples: samples of an epoch; None for a stream, whose order is fixed and whose length is unknown.
        batch_size: samples of a global batch, i.e. of one optimizer step.
        seed: seed of the run.
        rank: data-parallel rank, see DataParallelRank.
        world_size: number of data-parallel ranks.
        accumulation: micro-batches of a rank in an optimizer step.
        resume: (epoch, global batches of it that are trained) to resume from.
        same_epoch: repeat the same epoch, to check whether a model can overfit a few batches.
        sample_costs: [num_samples] cost of each sample, in any unit. Ranks then get shares of a global batch with about
            equal cost. The content of the global batch does not change.
        blocks: returns the blocks of an epoch, or None. The order follows `global_batches`, and the shares of a global
            batch are split by block, so that a rank mostly reads blocks of its own. With `sample_costs`, the shares
            are split by cost instead.
        count_trained: returns the number of micro-batches trained so far. The next iteration repeats an epoch of which
            nothing was trained, because Lightning begins iterations that it drops. None: every iteration is an epoch.

    Raises:
        ValueError: there is no sample.
    """

    def __init__(
        self,
        num_samples: int | None,
        batch_size: int,
        *,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        accumulation: int = 1,
        resume: tuple[int, int] = (0, 0),
        same_epoch: bool = False,
        sample_costs: NDArray[np.integer] | None = None,
        blocks: Callable[[int], ShuffleBlocks | None] = lambda epoch: None,
        count_trained: Callable[[], int] | None = None,
    ) -> None:
        if num_samples is not None and num_samples < 1:
            raise ValueError("the training set is empty: no sample to draw")
        self.num_samples, self.batch_size, self.seed = num_samples, batch_size, seed
        self.rank, self.world_size, self.accumulation = rank, world_size, accumulation
        self.epoch, self.batches_done = resume
        self._epoch_stride = 0 if same_epoch else 1
        self.sample_costs, self.blocks = sample_costs, blocks
        self._count_trained = count_trained or count().__next__  # without it each call gives another number
        self._count_at_start: int | None = None
        self._last_request: tuple[tuple[int, int], NDArray[np.int64]] | None = None

    @property
    def is_at_start_position(self) -> bool:
        """Whether nothing was trained since the position (`epoch`, `batches_done`)."""
        return self._count_at_start is None or self._count_trained() == self._count_at_start

    def __len__(self) -> int:
        """Return the micro-batches of a whole epoch, also if this epoch is resumed in its middle."""
        if self.num_samples is None:
            raise TypeError("a stream has no length")
        return -(-self.num_samples // self.batch_size) * self.accumulation

    def __iter__(self) -> Iterator[MicroBatchRequest]:
        trained = self._count_trained()
        if self._count_at_start is not None and trained != self._count_at_start:
            self.epoch, self.batches_done = self.epoch + self._epoch_stride, 0
        self._count_at_start = trained
        epoch = self.epoch
        for number, batch in self._global_batches(epoch, self.batches_done):
            yield from self._micro_batches(epoch, number, batch, self.rank)

    def requests_of(self, epoch: int, number: int, rank: int) -> list[MicroBatchRequest]:
        """Return the micro-batches of a rank in a global batch.

        The last global batch is kept: calls for its other ranks do not order the samples of the epoch again.
        """
        if self._last_request is None or self._last_request[0] != (epoch, number):
            self._last_request = (epoch, number), next(self._global_batches(epoch, number))[1]
        return list(self._micro_batches(epoch, number, self._last_request[1], rank))

    def _micro_batches(
        self, epoch: int, number: int, batch: NDArray[np.int64], rank: int
    ) -> Iterator[MicroBatchRequest]:
        shares = self.world_size * self.accumulation
        blocks = self.blocks(epoch) if self.sample_costs is None else None
        global_batch = None if self.num_samples is None else batch
        if blocks is not None:
            share_of_sample = _split_by_block(_groups_of(batch, blocks), shares)
            first = rank * self.accumulation
            parts = [batch[share_of_sample == share] for share in range(first, first + self.accumulation)]
        else:
            if self.sample_costs is not None and shares > 1:
                costs = self.sample_costs[batch].astype(np.int64)  # negated unsigned numbers would wrap
                batch = _snake_order(batch[np.argsort(-costs, kind="stable")], shares)
            # Strided, so that the shares of a smaller last batch also differ by at most one sample.
            parts = [batch[micro * self.world_size + rank :: shares] for micro in range(self.accumulation)]
        # In a small last batch a rank may have no sample. It gets a padding row, to take as many steps as the others.
        for part in parts:
            yield MicroBatchRequest(epoch, pad_if_empty(part), number, global_batch)

    def _global_batches(self, epoch: int, batches_done: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        if self.num_samples is None:
            size = self.batch_size
            return ((number, np.arange(number * size, (number + 1) * size)) for number in count(batches_done))
        batches = global_batches(self.num_samples, self.batch_size, self.seed, epoch, self.blocks(epoch))
        return zip(count(batches_done), batches[batches_done:], strict=False)


class EvaluationSampler(Sampler[MicroBatchRequest]):
    """Every sample once over all ranks, in batches that do not depend on the number of ranks.

    Whole batches are assigned round-robin (batch `i` to rank `i mod world_size`). A sample has the same neighbors
    and the same padding on any number of ranks, so its scores are bit-identical. Ranks without a batch in the last
    round get a padding row. For a stream, the rounds continue until the loader finds its end.

    Args:
        num_samples: samples to evaluate; None for a stream.
        batch_size: samples of a batch on one rank.
        rank: data-parallel rank, see DataParallelRank.
        world_size: number of data-parallel ranks.
    """

    def __init__(self, num_samples: int | None, batch_size: int, *, rank: int = 0, world_size: int = 1) -> None:
        self.num_samples, self.batch_size = num_samples, batch_size
        self.rank, self.world_size = rank, world_size

    def __len__(self) -> int:
        if self.num_samples is None:
            raise TypeError("a stream has no length")
        return -(-self.num_samples // (self.batch_size * self.world_size))

    def __iter__(self) -> Iterator[MicroBatchRequest]:
        for number in count() if self.num_samples is None else range(len(self)):
            start = (number * self.world_size + self.rank) * self.batch_size
            end = start + self.batch_size
            indices = np.arange(start, end if self.num_samples is None else min(end, self.num_samples))
            yield MicroBatchRequest(0, pad_if_empty(indices), number)


def _snake_order(batch: NDArray[np.int64], shares: int) -> NDArray[np.int64]:
    """Reverse every second round of `shares` samples, so that no share gets the costliest sample of every round."""
    rounds = [batch[start : start + shares] for start in range(0, len(batch), shares)]
    return np.concatenate(
        [part[::-1] if number % 2 and len(part) == shares else part for number, part in enumerate(rounds)]
    )


def _groups_of(batch: NDArray[np.int64], blocks: ShuffleBlocks) -> NDArray[np.int64]:
    """Return [b], the group of each sample's block."""
    if blocks.groups is None:
        return np.zeros(len(batch), np.int64)
    return blocks.groups[np.searchsorted(blocks.starts, batch, side="right") - 1]


def _split_by_block(groups: NDArray[np.int64], shares: int) -> NDArray[np.int64]:
    """Return [b], the share of each sample.

    A share is a contiguous part of each group. The sizes of the parts differ by at most one sample. The shares with one
    sample more rotate from group to group, so the total sizes differ by at most one too.
    """
    share_of_sample, next_share = np.empty(len(groups), np.int64), 0
    for group in np.unique(groups):
        # Parts of a group in turn; the first `remainder` shares from `next_share` on get one sample more.
        positions = np.flatnonzero(groups == group)
        quotient, remainder = divmod(len(positions), shares)
        lengths = quotient + ((np.arange(shares) - next_share) % shares < remainder)
        share_of_sample[positions] = np.repeat(np.arange(shares), lengths)
        next_share += remainder
    return share_of_sample
