"""Tar shards as a file of samples that can be read one by one: to validate and to test, or to train at random."""

import hashlib
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.image_chat import ImageChat
from datamodules.vision_language.shards.names import is_remote
from datamodules.vision_language.shards.shard import Place, Shard, open_shard
from datamodules.vision_language.shards.tar_chats import read_sample


_LOOKED_AT = 16
"""Samples of each shard whose beginnings tell it from another with samples of the same sizes."""

_BEGINNING = 2048  # bytes: the header, perhaps with one before it for a long name, and of what is small all


class TarChats:
    """A ChatFile of the samples of all shards. It keeps where each begins, which is eight bytes a sample.

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
        begins = [shard.begins() for shard in shards]
        self._begins, self._ends = np.concatenate(begins), np.cumsum([len(some) for some in begins])
        self.identity = _identity(self._shards, begins)

    def __len__(self) -> int:
        return len(self._begins)

    def name(self, row: int) -> str:
        return self._place(row).name

    def read(self, row: int) -> ImageChat:
        return read_sample(self._place(row))

    def _place(self, row: int) -> Place:
        shard = int(np.searchsorted(self._ends, row, side="right"))
        number = row - int(self._ends[shard - 1] if shard else 0)
        return Place(self._shards[shard], number, int(self._begins[row]), None)


def _identity(shards: Sequence[str], begins: Sequence[NDArray[np.int64]]) -> str:
    """Of what the shards hold: their sizes, where their samples begin, and how some of them do."""
    digest = hashlib.sha256()
    for name, some in zip(shards, begins, strict=True):
        digest.update(f"{os.path.getsize(name)} {len(some)} ".encode() + some.astype(np.int64).tobytes())
        with open_shard(name) as file:
            for number in np.unique(np.linspace(0, len(some) - 1, min(_LOOKED_AT, len(some))).astype(int)):
                file.seek(int(some[number]))
                digest.update(file.read(_BEGINNING))
    return digest.hexdigest()[:16]
