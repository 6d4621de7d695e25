"""Defines the protocol of a data set with random access."""

from typing import Any, Protocol

from typing_extensions import TypeVar

from engine.data.samplers import MicroBatchRequest

BatchT = TypeVar("BatchT", covariant=True, default=Any)


class BatchedDataset(Protocol[BatchT]):
    """A data set that assembles a whole micro-batch at once. Rows with PADDING_INDEX have weight zero.

    Optional members:

    * ``sample_costs``, [samples] integers: the cost of each sample. Ranks get shares of equal cost, see TrainSampler.
    * ``blocks(epoch)``: which samples are cheap to read together. The order then keeps to a window of blocks at a time.
    * ``first(number)``: the data set that a limited evaluation uses, for data sets whose order is not random.

    A data set raises `BadSampleError` (engine.data.errors) for a sample that cannot be used. If it loads its samples
    one by one, it calls `report_position` (engine.data.worker_process) before each, so that the message about a dead
    worker names the sample.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, draw: MicroBatchRequest) -> BatchT: ...
