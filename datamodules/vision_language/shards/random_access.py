"""Reads any sample of tar shards, for validation, tests, or training in random order."""

import hashlib
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.vision_language.chat_file import ChatFile, ImageChat
from datamodules.vision_language.shards.chat_reader import read_sample
from datamodules.vision_language.shards.shard import SampleLocation, Shard, open_shard
from datamodules.vision_language.shards.url_expansion import is_remote

_HASHED_SAMPLES = 16
"""Samples of each shard whose first bytes enter the identity, which distinguishes shards with equal sample sizes."""

_BEGINNING = 2048  # bytes: the header, possibly after an extended header, and the start of the content


class TarChats(ChatFile):
    """A ChatFile of the samples of all shards. It keeps the offsets of the samples, eight bytes per sample.

    Args:
        shards: the shards, in the order of their samples.

    Raises:
        ValueError: a shard is remote, corrupt, or has changed since it was indexed.
        OSError: a shard cannot be read.
    """

    blocks = None

    def __init__(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            if is_remote(shard.name):
                raise ValueError(
                    f"{shard.name}: random access needs local files; to train on remote shards, stream them "
                    "(data.init_args.shuffle_window)"
                )
        self._shards = [shard.name for shard in shards]
        begins = [shard.begins() for shard in shards]
        self._begins, self._ends = np.concatenate(begins), np.cumsum([len(offsets) for offsets in begins])
        self.identity = _identity(self._shards, begins)

    @override
    def __len__(self) -> int:
        return len(self._begins)

    @override
    def name(self, row: int) -> str:
        return self._locate(row).name

    @override
    def read(self, row: int) -> ImageChat:
        return read_sample(self._locate(row))

    def _locate(self, row: int) -> SampleLocation:
        shard = int(np.searchsorted(self._ends, row, side="right"))
        number = row - int(self._ends[shard - 1] if shard else 0)
        return SampleLocation(self._shards[shard], number, int(self._begins[row]), None)


def _identity(shards: Sequence[str], begins: Sequence[NDArray[np.int64]]) -> str:
    """Hash the sizes of the shards, the offsets of their samples, and the first bytes of some samples."""
    digest = hashlib.sha256()
    for name, offsets in zip(shards, begins, strict=True):
        digest.update(f"{os.path.getsize(name)} {len(offsets)} ".encode() + offsets.astype(np.int64).tobytes())
        with open_shard(name) as file:
            # The samples are spread evenly and include the first and the last.
            for number in np.unique(np.linspace(0, len(offsets) - 1, min(_HASHED_SAMPLES, len(offsets))).astype(int)):
                file.seek(int(offsets[number]))
                digest.update(file.read(_BEGINNING))
    return digest.hexdigest()[:16]
