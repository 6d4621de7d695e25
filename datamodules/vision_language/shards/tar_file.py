"""Tar shards as a file of samples that can be read one by one: to validate and to test, in one order."""

from collections.abc import Sequence

from datamodules.vision_language.image_chat import ImageChat
from datamodules.vision_language.shards.index import Shard
from datamodules.vision_language.shards.names import is_remote
from datamodules.vision_language.shards.tar_chats import read_sample


class TarChats:
    """A ChatFile of the samples of all shards, whose places it keeps (about a kilobyte each).

    Args:
        shards: in the order of their samples; files, as a sample's place is looked up.

    Raises:
        ValueError: a shard is no file, damaged, or not what it was when it was looked at.
        OSError: a shard cannot be read.
    """

    blocks = None

    def __init__(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            if is_remote(shard.name):
                raise ValueError(f"{shard.name}: shards to evaluate on are read at random; they must be files")
        self._samples = [sample for shard in shards for sample in shard.samples()]

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, row: int) -> str:
        return self._samples[row].name

    def read(self, row: int) -> ImageChat:
        return read_sample(self._samples[row])
