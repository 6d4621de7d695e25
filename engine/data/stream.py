"""Reads data with an order but neither a length nor random access: tar shards, row groups, logs.

Every rank and every loader worker reads the stream from its beginning, which is cheap; each decodes and collates only
its own share, which is expensive. The next record is thus a pure function of (seed, epoch, position), and a run can
resume from any position on any number of ranks and workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from engine.distributed.errors import CollectiveError

Record = TypeVar("Record")


class StreamDataset(ABC, Generic[Record]):
    """Base class of a family's stream.

    The records of an epoch and the batches made of them depend on (seed, epoch, position) alone
    (`engine.determinism.stateless_rng`), never on the rank or worker that reads them.
    """

    identity: str = ""
    """Identifies the content, e.g. a hash of the shards' names and sizes. A checkpoint from the middle of an epoch can
    only be resumed with the same identity."""

    @abstractmethod
    def records(self, epoch: int) -> Iterator[Record]:
        """Iterate over the raw records of an epoch, in the same order on all ranks."""

    def records_from(self, epoch: int, start: int) -> Iterator[Record]:
        """Iterate over `records` from position `start` on, which counts from 0; nothing follows beyond the end.

        The default reads and drops the earlier records; override it to skip whole shards.
        """
        return islice(self.records(epoch), start, None)

    @abstractmethod
    def batch(self, epoch: int, positions: NDArray[np.int64], records: list[Record]) -> Any:
        """Decode and collate a micro-batch.

        Args:
            epoch: the epoch.
            positions: [b] positions of the records in the epoch. A rank without a share in the last global batch gets
                [PADDING_INDEX], with a record of another rank as a template: its row must have weight zero.
            records: the b records.
        """


class StreamBatch(NamedTuple):
    """A micro-batch with the number of records of its whole global batch. With 0 records, the epoch has ended."""

    records: int
    batch: Any


class _GlobalBatch(NamedTuple):
    """The part of a global batch that a rank keeps."""

    epoch: int
    number: int
    records: int
    """Number of records of all ranks."""

    template: Any
    """First record, for the padding row of a rank without a share."""

    share: list[Any]
    """Records of this rank."""


class StreamBatches:
    """Reads the global batches of a stream and returns micro-batches of one rank's share.

    Args:
        stream: the data.
        size: records of a global batch; in an evaluation, of one batch on every rank.
        share: positions of a global batch that belong to this rank.
        max_records: limit for the records of an epoch; None for all.
    """

    def __init__(self, stream: StreamDataset[Any], size: int, share: slice, max_records: int | None = None) -> None:
        self.stream, self.size, self.share, self.max_records = stream, size, range(*share.indices(size)), max_records
        self._current: _GlobalBatch | None = None
        self._records: Iterator[Any] = iter(())
        self._epoch, self._position = -1, 0

    def __getitem__(self, request: MicroBatchRequest) -> StreamBatch:
        if self._current is None or self._current[:2] != (request.epoch, request.step_in_epoch):
            # Consecutive requests are often of the same global batch, whose records are then read once.
            self._current = self._read(request.epoch, request.step_in_epoch)
        current = self._current
        if not current.records:
            return StreamBatch(0, None)
        positions = request.indices[request.indices != PADDING_INDEX]
        # Positions count from the start of the epoch, offsets from the start of the global batch.
        offsets = positions - request.step_in_epoch * self.size
        offsets = offsets[offsets < current.records]
        # Another rank has the records of a short last batch. This rank computes a row of weight zero, to stay in step.
        if not len(offsets):
            padding = self.stream.batch(request.epoch, np.array([PADDING_INDEX]), [current.template])
            return StreamBatch(current.records, padding)
        records = [current.share[self.share.index(offset)] for offset in offsets.tolist()]
        return StreamBatch(current.records, self.stream.batch(request.epoch, positions[: len(offsets)], records))

    def _read(self, epoch: int, number: int) -> _GlobalBatch:
        start = number * self.size
        # An iterator only moves forward, so another epoch or an earlier position starts a new iterator.
        if epoch != self._epoch or start < self._position:
            self._epoch, self._position = epoch, start
            self._records = iter(self.stream.records_from(epoch, start))
        for _ in islice(self._records, start - self._position):
            pass  # global batches that other workers load
        template, share, count = None, [], 0
        # The last global batch of a limited evaluation may be smaller.
        size = self.size if self.max_records is None else max(0, min(self.size, self.max_records - start))
        for count, record in enumerate(islice(self._records, size), start=1):
            template = record if count == 1 else template
            if count - 1 in self.share:
                share.append(record)
        self._position = start + self.size
        return _GlobalBatch(epoch, number, count, template, share)


class EpochEndCheck:
    """Compares the number of records of each global batch over all ranks.

    All ranks read the same records and thus find the same end. If a rank finds fewer (e.g. a shard is missing on its
    node), the other ranks would wait for it in the middle of a step; this check makes all of them raise instead.

    Args:
        group: process group on the CPU, so that no rank waits for its GPU. None for a single process.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._checked: tuple[int, int] | None = None

    def __call__(self, request: MicroBatchRequest, count: int) -> bool:
        """Return whether the epoch ended before this global batch. A collective.

        Args:
            request: a micro-batch of the global batch.
            count: records of the global batch that this rank finds.

        Raises:
            CollectiveError: the ranks find different numbers.
        """
        # Compared once for each global batch: its micro-batches have the same number of records.
        if self._group is not None and self._checked != (request.epoch, request.step_in_epoch):
            self._checked = request.epoch, request.step_in_epoch
            gathered = [torch.empty(1, dtype=torch.int64) for _ in range(torch.distributed.get_world_size(self._group))]
            torch.distributed.all_gather(gathered, torch.tensor([count]), group=self._group)
            counts = [int(records) for records in gathered]
            if min(counts) != max(counts):
                short = [rank for rank, records in enumerate(counts) if records < max(counts)]
                raise CollectiveError(
                    f"the stream ran out on rank {', '.join(map(str, short))} at global batch "
                    f"{request.step_in_epoch} of epoch {request.epoch}: the ranks find {', '.join(map(str, counts))} "
                    "records in it. All of them must read the same records in the same order; compare the stream's "
                    "files between the nodes"
                )
        return count == 0


def require_trained_batches(
    request: MicroBatchRequest, batches_done: int, batch_size: int, accumulation: int, limit: float | None
) -> None:
    """Check at the end of an epoch that Lightning would not silently train nothing or skip the validation.

    Args:
        request: first request beyond the end.
        batches_done: global batches of the epoch that were trained before this process started.
        batch_size: records of a global batch.
        accumulation: micro-batches of a rank in a global batch.
        limit: `trainer.limit_train_batches`, a number of micro-batches or a fraction.

    Raises:
        CollectiveError: the epoch has no batch, or fewer than the limit. All ranks raise it.
    """
    if request.step_in_epoch == batches_done:
        raise CollectiveError(
            f"the training stream has no record at position {request.step_in_epoch * batch_size} of epoch "
            f"{request.epoch}: it is empty, or shorter than when the checkpoint was written"
        )
    if isinstance(limit, int) and request.step_in_epoch < (steps := limit // accumulation):
        raise CollectiveError(
            f"trainer.limit_train_batches is {steps} steps, but epoch {request.epoch} of the stream has only "
            f"{request.step_in_epoch}; make it smaller, or remove it"
        )
