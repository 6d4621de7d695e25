"""Encodes chats from a stream: samples with an order but without random access."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.multimodal.batch import ChatTrainBatch
from datamodules.multimodal.chat_dataset import ChatExamples, ChatItem, ChatSource
from engine.data.samplers import MicroBatchRequest
from engine.data.stream import StreamDataset

Record = TypeVar("Record")


class ChatRecords(Protocol[Record]):
    """Encoded samples of a family in the order of an epoch, as read by engine.data.stream.StreamDataset."""

    identity: str

    def records_from(self, epoch: int, start: int) -> Iterator[Record]:
        """Yield the records of an epoch from a position on."""
        ...

    def name(self, record: Record) -> str:
        """Return the location of a record, for messages."""
        ...

    def item(self, record: Record) -> ChatItem:
        """Return a record as messages.

        Raises:
            BadSampleError: the record is invalid; the message names it.
        """
        ...

    def collate(self, items: Sequence[object]) -> Any:
        """Return a batch for the encoder; `items` may be empty."""
        ...


class ChatStream(StreamDataset[Record]):
    """Micro-batches as ChatExamples returns them. The index of a sample is its position in the epoch.

    Args:
        source: the samples.
        examples: builds a ChatExamples from a source.
    """

    def __init__(self, source: ChatRecords[Record], examples: Callable[[ChatSource], ChatExamples]) -> None:
        self.source, self.examples = source, examples
        self.identity = source.identity

    @override
    def records(self, epoch: int) -> Iterator[Record]:
        return self.records_from(epoch, 0)

    @override
    def records_from(self, epoch: int, start: int) -> Iterator[Record]:
        return self.source.records_from(epoch, start)

    @override
    def batch(self, epoch: int, positions: NDArray[np.int64], records: list[Record]) -> tuple[ChatTrainBatch, ...]:
        # A padding position comes with the record of another sample, which ChatExamples ignores.
        by_position = dict(zip(positions.tolist(), records, strict=True))
        return self.examples(_MicroBatchSource(self.source, by_position))[MicroBatchRequest(epoch, positions)]


class _MicroBatchSource(Generic[Record]):
    """ChatSource of the records of one micro-batch, by position."""

    def __init__(self, source: ChatRecords[Record], records: Mapping[int, Record]) -> None:
        self._source, self._records = source, records
        self.collate = source.collate

    def __len__(self) -> int:
        return len(self._records)

    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self._source.name(self._records[index])})"

    def item(self, epoch: int, index: int) -> ChatItem:
        return self._source.item(self._records[index])
