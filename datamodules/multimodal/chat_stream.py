"""Chats to train on, of data with an order but without random access."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.batch import Examples
from datamodules.multimodal.chat_sets import ChatExamples, ChatItem, ChatSource
from engine.sampling import Draw
from engine.streaming import Stream

Record = TypeVar("Record")


class ChatRecords(Protocol[Record]):
    """A family's samples in the order of an epoch, not yet decoded: see engine.streaming.Stream for what is asked."""

    identity: str

    def records_from(self, epoch: int, start: int) -> Iterator[Record]:
        """The records of an epoch from a position on."""
        ...

    def name(self, record: Record) -> str:
        """Where the record stands, for messages."""
        ...

    def item(self, record: Record) -> ChatItem:
        """
        Raises:
            UnusableSample: see there; the message names the record.
        """
        ...

    def collate(self, items: Sequence[Any]) -> Any:
        """What the encoder reads; also of no items."""
        ...


class ChatStream(Stream[Record]):
    """Micro-batches as ChatExamples makes them; a sample's number is its position in the epoch.

    Args:
        source: the samples.
        examples: makes a ChatExamples of samples.
    """

    def __init__(self, source: ChatRecords[Record], examples: Callable[[ChatSource], ChatExamples]) -> None:
        self.source, self.examples = source, examples
        self.identity = source.identity

    def records(self, epoch: int) -> Iterator[Record]:
        return self.records_from(epoch, 0)

    def records_from(self, epoch: int, start: int) -> Iterator[Record]:
        return self.source.records_from(epoch, start)

    def batch(self, epoch: int, positions: NDArray[np.int64], records: list[Record]) -> tuple[Examples, ...]:
        # A FILLER's record is somebody else's; ChatExamples does not ask for it.
        numbered = dict(zip(positions.tolist(), records, strict=True))
        return self.examples(_Drawn(self.source, numbered))[Draw(epoch, positions)]


class _Drawn(Generic[Record]):
    """The records of a micro-batch, by their positions."""

    def __init__(self, source: ChatRecords[Record], records: Mapping[int, Record]) -> None:
        self._source, self._records = source, records
        self.collate = source.collate

    def __len__(self) -> int:
        return len(self._records)

    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self._source.name(self._records[index])})"

    def item(self, epoch: int, index: int) -> ChatItem:
        return self._source.item(self._records[index])
