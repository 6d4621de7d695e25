"""Which samples come next: a pure function of (seed, epoch, position), whatever the number of processes.

An epoch is a list of *global batches*. Each is dealt out to ``processes x accumulation`` micro-batches; what a process
gets depends on the number of processes, what a global batch holds does not. So a run may go on from any position on
any number of processes and see exactly the samples that were left, in the same global batches.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from engine.randomness import hash_permutation

FILLER = -1
"""The index of a row that holds no sample: it keeps a process in step with the others and weighs nothing."""

_ORDER = 1  # this stream's name beside those of the data sets, which hash the same seed


class Draw(NamedTuple):
    """What a sampler asks a data set for: one micro-batch. The epoch travels along, so workers need no state."""

    epoch: int
    indices: NDArray[np.int64]  # [b], FILLER where there is no sample


def global_batches(num_samples: int, batch_size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The global batches of an epoch: every sample once, in random order; the last batch may be smaller."""
    order = hash_permutation(num_samples, seed, epoch, _ORDER)
    return [order[start : start + batch_size] for start in range(0, num_samples, batch_size)]


class TrainSampler(Sampler[Draw]):
    """The micro-batches of one process; each iteration is the next epoch.

    It counts the epochs itself: Lightning's own counter runs ahead when a run that is bounded by steps is resumed at
    the end of an epoch (its `set_epoch` is called for an epoch without batches).

    Args:
        batch_size: samples in a global batch; one optimizer step sees exactly these.
        accumulation: micro-batches per process and optimizer step.
        resume: (epoch, global batches already trained in it) to go on from.
        same_epoch: every iteration is the same epoch, to see whether a model learns a few batches by heart.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        *,
        seed: int,
        process: int = 0,
        processes: int = 1,
        accumulation: int = 1,
        resume: tuple[int, int] = (0, 0),
        same_epoch: bool = False,
    ) -> None:
        if num_samples < 1:
            raise ValueError("the training set is empty: no sample to draw")
        self.num_samples, self.batch_size, self.seed = num_samples, batch_size, seed
        self.process, self.processes, self.accumulation = process, processes, accumulation
        self.epoch, self._done = resume
        self._next_epoch = self.epoch
        self._stride = 0 if same_epoch else 1

    def __len__(self) -> int:
        """Micro-batches of a whole epoch, also when this one is resumed in its middle."""
        return -(-self.num_samples // self.batch_size) * self.accumulation

    def __iter__(self) -> Iterator[Draw]:
        epoch = self.epoch = self._next_epoch
        self._next_epoch += self._stride
        done, self._done = self._done, 0
        batches = global_batches(self.num_samples, self.batch_size, self.seed, epoch)
        shares = self.processes * self.accumulation
        for batch in batches[done:]:
            for micro in range(self.accumulation):
                # Strided: of a smaller last batch, too, the shares differ by one sample at most.
                yield Draw(epoch, _or_filler(batch[micro * self.processes + self.process :: shares]))


class EvaluationSampler(Sampler[Draw]):
    """Every sample once over all processes, in batches that do not depend on their number.

    Whole batches are dealt out (batch ``i`` to process ``i mod processes``), so a sample meets the same neighbours and
    the same padding everywhere, and its scores are the same to the bit. Processes that run out get a filler.
    """

    def __init__(self, num_samples: int, batch_size: int, *, process: int = 0, processes: int = 1) -> None:
        self.num_samples, self.batch_size = num_samples, batch_size
        self.process, self.processes = process, processes

    def __len__(self) -> int:
        return -(-self.num_samples // (self.batch_size * self.processes))

    def __iter__(self) -> Iterator[Draw]:
        for turn in range(len(self)):
            start = (turn * self.processes + self.process) * self.batch_size
            yield Draw(0, _or_filler(np.arange(start, min(start + self.batch_size, self.num_samples))))


def _or_filler(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    return indices if len(indices) else np.array([FILLER])
