"""Defines the protocol of a data set with random access."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from engine.data.epoch_order import ShuffleBlocks
from engine.data.samplers import MicroBatchRequest

BatchT = TypeVar("BatchT", covariant=True, default=Any)


class BatchedDataset(Protocol[BatchT]):
    """A data set that assembles a whole micro-batch at once. Rows with PADDING_INDEX have weight zero.

    Optional members are those of `HasSampleCosts`, `HasShuffleBlocks` and `HasLimitedSubset`.

    A data set raises `BadSampleError` (engine.data.errors) for a sample that cannot be used. If it loads its samples
    one by one, it calls `report_position` (engine.data.worker_process) before each, so that the message about a dead
    worker names the sample.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, request: MicroBatchRequest) -> BatchT: ...


@runtime_checkable
class HasSampleCosts(Protocol):
    """A data set of samples that take different time. Ranks get shares of equal cost, see TrainSampler."""

    @property
    def sample_costs(self) -> NDArray[np.integer]:
        """[samples] cost of each sample, in any unit."""


@runtime_checkable
class HasShuffleBlocks(Protocol):
    """A data set that reads some samples together at less cost. The order keeps to a window of blocks at a time."""

    def blocks(self, epoch: int) -> ShuffleBlocks | None:
        """Return the blocks of an epoch; None if all samples are independent."""


@runtime_checkable
class HasLimitedSubset(Protocol):
    """A data set that chooses the samples of a limited evaluation, because its own order is not random."""

    def first(self, number: int) -> BatchedDataset:
        """Return the data set of `number` samples."""


def sample_costs(data: object) -> NDArray[np.integer] | None:
    """Return the cost of each sample, or None for samples of equal cost."""
    return data.sample_costs if isinstance(data, HasSampleCosts) else None


def shuffle_blocks(data: object, epoch: int) -> ShuffleBlocks | None:
    """Return the blocks of an epoch, or None for samples that are independent."""
    return data.blocks(epoch) if isinstance(data, HasShuffleBlocks) else None
