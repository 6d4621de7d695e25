"""Streams tar shards as training chats."""

from collections.abc import Iterator, Sequence
from typing import Any

from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.chat_stream import ChatRecords
from datamodules.vision_language.chat_dataset import ChatImages
from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.shards.chat_reader import read_sample
from datamodules.vision_language.shards.shard import SampleLocation, Shard
from datamodules.vision_language.shards.shuffle import ShardOrder


class ShardRecords(ChatRecords[SampleLocation]):
    """Samples of shards in the order of an epoch; see ChatRecords.

    Args:
        shards: the shards, each with the system message of chats that have none.
        shuffle_window: see ShardOrder.
        processor: processor of the images.

    Raises:
        ValueError: a shard occurs twice.
    """

    def __init__(self, shards: Sequence[tuple[Shard, str | None]], shuffle_window: int, processor: ChatImages) -> None:
        self._order, self.processor = ShardOrder([shard for shard, _ in shards], shuffle_window), processor
        self._systems = {shard.name: system for shard, system in shards}
        self.identity = self._order.identity
        if len(self._systems) < len(shards):
            raise ValueError("two sources name the same tar shard; each shard is read once per epoch")

    @override
    def records_from(self, epoch: int, start: int) -> Iterator[SampleLocation]:
        return self._order.locations_from(epoch, start)

    @override
    def name(self, record: SampleLocation) -> str:
        return record.name

    @override
    def item(self, record: SampleLocation) -> ChatItem:
        return self.processor.item(self._read(record))

    @override
    def collate(self, items: Sequence[object]) -> Any:
        return self.processor.collate(items)

    def _read(self, record: SampleLocation) -> ImageChat:
        return read_sample(record).with_system(self._systems[record.shard])
