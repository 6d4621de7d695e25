"""Data with an order but neither length nor random access: tar shards, row groups, logs.

A stream is read from its beginning by every process and every loader worker, which is cheap; each decodes and collates
only its own share, which is not. So the next record is a pure function of (seed, epoch, position) here too, and a run
may go on from any position on any number of processes and workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from engine.faults import AgreedFailure
from engine.sampling import FILLER, Draw

Record = TypeVar("Record")


class Stream(ABC, Generic[Record]):
    """What a family implements to train or evaluate on a stream.

    The records of an epoch, and what `batch` makes of them, depend on (seed, epoch, position) alone
    (`engine.randomness`), never on the process that asks.
    """

    identity: str = ""
    """What the stream is made of, such as a hash of its shards' names and sizes. A checkpoint from the middle of an
    epoch is only resumed with the identity that it was written with."""

    @abstractmethod
    def records(self, epoch: int) -> Iterator[Record]:
        """The raw records of an epoch in the one order that all processes share."""

    def records_from(self, epoch: int, start: int) -> Iterator[Record]:
        """`records` from position `start` on. Reads over what comes before; override it to skip whole shards."""
        return islice(self.records(epoch), start, None)

    @abstractmethod
    def batch(self, epoch: int, positions: NDArray[np.int64], records: list[Record]) -> Any:
        """Decodes and collates a micro-batch: the records at these positions of the epoch.

        Without a share in the last global batch, `positions` is [FILLER] and `records` holds somebody else's record,
        for the form of it: a row that weighs nothing.
        """


class Streamed(NamedTuple):
    """A micro-batch, and how many records its whole global batch has; none: the epoch has ended before it."""

    count: int
    batch: Any


class _Window(NamedTuple):
    """What was kept of a global batch."""

    epoch: int
    number: int
    count: int
    first: Any
    own: list[Any]


class StreamBatches:
    """Answers the draws of one process: reads on to a global batch, and hands out micro-batches of its own share.

    Args:
        size: records in a global batch (in evaluation: in a turn of all processes).
        own: the part of a global batch that this process has.
        most: records of an epoch that count; None for all.
    """

    def __init__(self, stream: Stream[Any], size: int, own: slice, most: int | None = None) -> None:
        self.stream, self.size, self.own, self.most = stream, size, range(*own.indices(size)), most
        self._window: _Window | None = None
        self._records: Iterator[Any] = iter(())
        self._epoch, self._position = -1, 0

    def __getitem__(self, draw: Draw) -> Streamed:
        if self._window is None or self._window[:2] != (draw.epoch, draw.number):
            self._window = self._read(draw.epoch, draw.number)
        window = self._window
        if not window.count:
            return Streamed(0, None)
        positions = draw.indices[draw.indices != FILLER]
        offsets = positions - draw.number * self.size
        offsets = offsets[offsets < window.count]
        if not len(offsets):
            return Streamed(window.count, self.stream.batch(draw.epoch, np.array([FILLER]), [window.first]))
        records = [window.own[self.own.index(offset)] for offset in offsets.tolist()]
        return Streamed(window.count, self.stream.batch(draw.epoch, positions[: len(offsets)], records))

    def _read(self, epoch: int, number: int) -> _Window:
        start = number * self.size
        if epoch != self._epoch or start < self._position:
            self._epoch, self._position = epoch, start
            self._records = iter(self.stream.records_from(epoch, start))
        for _ in islice(self._records, start - self._position):
            pass  # the global batches of the other workers
        first, own, count = None, [], 0
        size = self.size if self.most is None else max(0, min(self.size, self.most - start))
        for count, record in enumerate(islice(self._records, size), start=1):
            first = record if count == 1 else first
            if count - 1 in self.own:
                own.append(record)
        self._position = start + self.size
        return _Window(epoch, number, count, first, own)


class AgreedEnd:
    """Where an epoch ends, asked before each global batch on all processes.

    They read the same records, so they find the same end. Should a stream give one process fewer (a shard that is
    missing on its node), the others would wait for it in the middle of a step; here all of them stop and say so.

    Args:
        group: of processes; one that works on the CPU, so that a GPU need not wait. None for a process alone.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._asked: tuple[int, int] | None = None

    def __call__(self, draw: Draw, count: int) -> bool:
        """Whether the epoch has ended before this global batch, of which this process finds `count` records.

        Raises:
            AgreedFailure: the processes find different numbers.
        """
        if self._group is not None and self._asked != (draw.epoch, draw.number):
            self._asked = draw.epoch, draw.number
            counts = [torch.empty(1, dtype=torch.int64) for _ in range(torch.distributed.get_world_size(self._group))]
            torch.distributed.all_gather(counts, torch.tensor([count]), group=self._group)
            found = [int(one) for one in counts]
            if min(found) != max(found):
                short = [process for process, records in enumerate(found) if records < max(found)]
                raise AgreedFailure(
                    f"the stream ran out on process {', '.join(map(str, short))} at global batch {draw.number} of "
                    f"epoch {draw.epoch}: the processes find {', '.join(map(str, found))} records in it. All of them "
                    "must read the same records in the same order; compare the stream's files between the nodes"
                )
        return count == 0


def processes_on_cpu() -> Any:
    """The group of all processes for collectives on the CPU; to be called by all of them. None for a process alone."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    if "gloo" in str(torch.distributed.get_backend()):
        return torch.distributed.group.WORLD
    return torch.distributed.new_group(backend="gloo")
