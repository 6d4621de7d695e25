"""Which samples come next: a pure function of (seed, epoch, position), whatever the number of processes.

An epoch is a list of *global batches*. Each is dealt out to ``processes x accumulation`` micro-batches; what a process
gets depends on the number of processes, what a global batch holds does not. So a run may go on from any position on
any number of processes and see exactly the samples that were left, in the same global batches.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from engine.randomness import hash_bits, hash_permutation

FILLER = -1
"""The index of a row that holds no sample: it keeps a process in step with the others and weighs nothing."""

_ORDER = 1  # this stream's name beside those of the data sets, which hash the same seed
_BLOCKS = 0xB10C  # and that of the order of blocks


class Blocks(NamedTuple):
    """Samples that are cheap to read together: those from where a block starts up to where the next one does."""

    starts: NDArray[np.int64]  # [blocks] ascending from 0
    sizes: NDArray[np.int64]  # [blocks] what it takes to keep each, in any unit; 0 for nothing
    window: int  # in the same unit: so much, and at most a block more, is mixed
    groups: NDArray[np.int64] | None = None
    """[blocks] of each block its group: of every group a batch has, all processes get alike. None: there is one."""


class Draw(NamedTuple):
    """What a sampler asks a data set for: one micro-batch. The epoch travels along, so workers need no state."""

    epoch: int
    indices: NDArray[np.int64]  # [b], FILLER where there is no sample; of a stream: positions, also beyond its end
    number: int = 0  # of the global batch in the epoch, from 0


def global_batches(
    num_samples: int, batch_size: int, seed: int, epoch: int, blocks: Blocks | None = None
) -> list[NDArray[np.int64]]:
    """The global batches of an epoch: every sample once, in random order; the last batch may be smaller.

    With `blocks` the order is random in two steps: of the blocks, and of the samples within each window of blocks. So
    all samples of a block come within one window, whose blocks can be kept. In a batch they stand side by side, and
    blocks that come early in their window before those that come late.
    """
    starts = range(0, num_samples, batch_size)
    if blocks is None:
        order = hash_permutation(num_samples, seed, epoch, _ORDER)
        return [order[start : start + batch_size] for start in starts]
    in_turn = hash_permutation(len(blocks.starts), seed, epoch, _BLOCKS)
    sizes, lengths = blocks.sizes[in_turn], np.diff(blocks.starts, append=num_samples)[in_turn]
    windows, offsets = np.divmod(np.cumsum(sizes) - sizes, blocks.window)
    ranks = np.argsort(np.argsort(offsets, kind="stable"))
    windows, ranks = np.repeat(windows, lengths), np.repeat(ranks, lengths)  # of samples, block by block
    samples = np.repeat(blocks.starts[in_turn] - np.cumsum(lengths) + lengths, lengths) + np.arange(num_samples)
    order = np.lexsort((hash_bits(seed, epoch, _ORDER, samples), windows))
    batches = (order[start : start + batch_size] for start in starts)
    return [samples[batch[np.argsort(ranks[batch], kind="stable")]] for batch in batches]


class TrainSampler(Sampler[Draw]):
    """The micro-batches of one process; each iteration is the next epoch.

    It counts the epochs itself: Lightning's own counter runs ahead when a run that is bounded by steps is resumed at
    the end of an epoch (its `set_epoch` is called for an epoch without batches).

    Args:
        num_samples: samples in an epoch; None for a stream, which is in order already and of unknown length.
        batch_size: samples in a global batch; one optimizer step sees exactly these.
        accumulation: micro-batches per process and optimizer step.
        resume: (epoch, global batches already trained in it) to go on from.
        same_epoch: every iteration is the same epoch, to see whether a model learns a few batches by heart.
        work: about how long each sample takes, in any unit; the shares of a global batch are then dealt out equal in
            it, so that no process waits for one with longer samples. What a global batch holds does not change.
        blocks: which samples of an epoch are cheap to read together; None where all are alike. Their order follows
            `global_batches`, and the shares of a global batch are dealt out by block, so that each process mostly
            reads blocks of its own; of each group of blocks alike, as samples of one may take longer. With `work`, the
            shares are dealt out by that instead.
        trained: how many micro-batches were trained so far. Lightning begins iterations that it then drops; one that
            nothing was trained of is begun again.
    """

    def __init__(
        self,
        num_samples: int | None,
        batch_size: int,
        *,
        seed: int,
        process: int = 0,
        processes: int = 1,
        accumulation: int = 1,
        resume: tuple[int, int] = (0, 0),
        same_epoch: bool = False,
        work: NDArray[np.integer] | None = None,
        blocks: Callable[[int], Blocks | None] = lambda epoch: None,
        trained: Callable[[], int] | None = None,
    ) -> None:
        if num_samples is not None and num_samples < 1:
            raise ValueError("the training set is empty: no sample to draw")
        self.num_samples, self.batch_size, self.seed = num_samples, batch_size, seed
        self.process, self.processes, self.accumulation = process, processes, accumulation
        self.epoch, self.done = resume
        self._stride = 0 if same_epoch else 1
        self.work, self.blocks = work, blocks
        self._trained = trained or count().__next__
        self._begun: int | None = None

    @property
    def untouched(self) -> bool:
        """Whether nothing was trained yet of the epoch that stands at (`epoch`, `done`)."""
        return self._begun is None or self._trained() == self._begun

    def __len__(self) -> int:
        """Micro-batches of a whole epoch, also when this one is resumed in its middle."""
        if self.num_samples is None:
            raise TypeError("a stream has no length")
        return -(-self.num_samples // self.batch_size) * self.accumulation

    def __iter__(self) -> Iterator[Draw]:
        trained = self._trained()
        if self._begun is not None and trained != self._begun:
            self.epoch, self.done = self.epoch + self._stride, 0
        self._begun = trained
        epoch = self.epoch
        for number, batch in self._global_batches(epoch, self.done):
            yield from self._deal(epoch, number, batch, self.process)

    def draws_of(self, epoch: int, number: int, process: int) -> list[Draw]:
        """The micro-batches that a process has in a global batch."""
        _, batch = next(self._global_batches(epoch, number))
        return list(self._deal(epoch, number, batch, process))

    def _deal(self, epoch: int, number: int, batch: NDArray[np.int64], process: int) -> Iterator[Draw]:
        shares = self.processes * self.accumulation
        blocks = self.blocks(epoch) if self.work is None else None
        if blocks is not None:
            dealt = _by_block(_groups_of(batch, blocks), shares)
            first = process * self.accumulation
            parts = [batch[dealt == share] for share in range(first, first + self.accumulation)]
        else:
            if self.work is not None and shares > 1:
                batch = _there_and_back(batch[np.argsort(-self.work[batch], kind="stable")], shares)
            parts = [batch[micro * self.processes + process :: shares] for micro in range(self.accumulation)]
        # Of a smaller last batch, too, the shares differ by one sample at most.
        for part in parts:
            yield Draw(epoch, _or_filler(part), number)

    def _global_batches(self, epoch: int, done: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        if self.num_samples is None:
            size = self.batch_size
            return ((number, np.arange(number * size, (number + 1) * size)) for number in count(done))
        batches = global_batches(self.num_samples, self.batch_size, self.seed, epoch, self.blocks(epoch))
        return zip(count(done), batches[done:], strict=False)


class EvaluationSampler(Sampler[Draw]):
    """Every sample once over all processes, in batches that do not depend on their number.

    Whole batches are dealt out (batch ``i`` to process ``i mod processes``), so a sample meets the same neighbours and
    the same padding everywhere, and its scores are the same to the bit. Processes that run out get a filler. Of a
    stream (`num_samples` None) the turns go on until the loader sees its end.
    """

    def __init__(self, num_samples: int | None, batch_size: int, *, process: int = 0, processes: int = 1) -> None:
        self.num_samples, self.batch_size = num_samples, batch_size
        self.process, self.processes = process, processes

    def __len__(self) -> int:
        if self.num_samples is None:
            raise TypeError("a stream has no length")
        return -(-self.num_samples // (self.batch_size * self.processes))

    def __iter__(self) -> Iterator[Draw]:
        for turn in count() if self.num_samples is None else range(len(self)):
            start = (turn * self.processes + self.process) * self.batch_size
            end = start + self.batch_size
            indices = np.arange(start, end if self.num_samples is None else min(end, self.num_samples))
            yield Draw(0, _or_filler(indices), turn)


def _there_and_back(batch: NDArray[np.int64], shares: int) -> NDArray[np.int64]:
    """Every second round of dealing goes from the last share to the first: none has the longer of every pair."""
    rounds = [batch[start : start + shares] for start in range(0, len(batch), shares)]
    return np.concatenate([one[::-1] if turn % 2 and len(one) == shares else one for turn, one in enumerate(rounds)])


def _groups_of(batch: NDArray[np.int64], blocks: Blocks) -> NDArray[np.int64]:
    """[b] the group of each sample."""
    if blocks.groups is None:
        return np.zeros(len(batch), np.int64)
    return blocks.groups[np.searchsorted(blocks.starts, batch, side="right") - 1]


def _by_block(groups: NDArray[np.int64], shares: int) -> NDArray[np.int64]:
    """[b] the share of each sample: stretches of each group, which differ by one sample at most.

    Who gets one more of a group goes round, so that all that a share gets differs by one at most, too.
    """
    dealt, next_share = np.empty(len(groups), np.int64), 0
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        each, more = divmod(len(places), shares)
        lengths = each + ((np.arange(shares) - next_share) % shares < more)
        dealt[places] = np.repeat(np.arange(shares), lengths)
        next_share += more
    return dealt


def _or_filler(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    return indices if len(indices) else np.array([FILLER])
