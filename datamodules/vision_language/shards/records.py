"""Tar shards as chats to train on, one after the other."""

from collections.abc import Iterator, Sequence

from datamodules.multimodal.batch import Images
from datamodules.multimodal.chat_sets import ChatItem
from datamodules.multimodal.images import Views, collate_views
from datamodules.vision_language.image_chat import ImageChat
from datamodules.vision_language.image_chat_samples import Cutting
from datamodules.vision_language.shards.order import ShardOrder
from datamodules.vision_language.shards.shard import Place, Shard
from datamodules.vision_language.shards.tar_chats import read_sample


class ShardRecords:
    """Samples of shards in the order of an epoch; see ChatRecords.

    Args:
        shards: each with the system message that chats of it get which have none.
        shuffle_window: see ShardOrder.
        cutting: of the images.

    Raises:
        ValueError: a shard stands there twice.
    """

    def __init__(self, shards: Sequence[tuple[Shard, str | None]], shuffle_window: int, cutting: Cutting) -> None:
        self._order, self.cutting = ShardOrder([shard for shard, _ in shards], shuffle_window), cutting
        self._systems = {shard.name: system for shard, system in shards}
        self.identity = self._order.identity
        if len(self._systems) < len(shards):
            raise ValueError("a tar shard is named by two sources; each is trained once an epoch")

    def records_from(self, epoch: int, start: int) -> Iterator[Place]:
        return self._order.places_from(epoch, start)

    def name(self, record: Place) -> str:
        return record.name

    def item(self, record: Place) -> ChatItem:
        return self.cutting.item(self._read(record))

    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.cutting.layout)

    def _read(self, record: Place) -> ImageChat:
        return read_sample(record).with_system(self._systems[record.shard])
