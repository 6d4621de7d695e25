"""Tar shards as a file of samples that can be read one by one: to validate and to test, or to train at random."""

from collections.abc import Sequence

import numpy as np

from datamodules.vision_language.image_chat import ImageChat
from datamodules.vision_language.shards.index import Shard, open_shard
from datamodules.vision_language.shards.names import is_remote
from datamodules.vision_language.shards.tar_chats import read_from
from datamodules.vision_language.shards.tar_samples import tar_samples


class TarChats:
    """A ChatFile of the samples of all shards. It keeps where each begins (8 bytes), and reads all headers to know.

    Args:
        shards: in the order of their samples.

    Raises:
        ValueError: a shard is no file of this machine's, damaged, or not what it was when it was looked at.
        OSError: a shard cannot be read.
    """

    blocks = None

    def __init__(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            if is_remote(shard.name):
                raise ValueError(
                    f"{shard.name}: samples are read at random here, which needs files; to train on other shards, "
                    "stream them (data.init_args.shuffle_window)"
                )
        self._shards = [shard.name for shard in shards]
        begins = [np.fromiter((sample.begin for sample in shard.samples()), np.int64) for shard in shards]
        self._begins, self._ends = np.concatenate(begins), np.cumsum([len(some) for some in begins])

    def __len__(self) -> int:
        return len(self._begins)

    def name(self, row: int) -> str:
        shard, number = self._place(row)
        return f"{shard}, sample {number}"

    def read(self, row: int) -> ImageChat:
        shard, number = self._place(row)
        begin = int(self._begins[row])
        with open_shard(shard) as file:
            file.seek(begin)
            return read_from(next(tar_samples(file, shard, keep=False, begin=begin, number=number)), file)

    def _place(self, row: int) -> tuple[str, int]:
        shard = int(np.searchsorted(self._ends, row, side="right"))
        return self._shards[shard], row - int(self._ends[shard - 1] if shard else 0)
