"""Several files of chats as the samples of one epoch, each as often as its weight says."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.image_chat import ChatFile, ImageChat
from datamodules.vision_language.source_settings import SourceSettings
from engine.randomness import hash_permutation
from engine.sampling import Blocks

_ROUND = 0x2047D  # this order's name beside whatever else hashes the same seed
_BLOCK = 256  # rows of what counts as a block where any row costs the same


class _Round:
    """The rows of one source, gone round and round: each epoch goes on where the one before it ended.

    Where an epoch takes part of the rows, they are gone through block by block in a random order (always the same), so
    that the part is a sample of all, and blocks are still read at once. Else they keep their order.
    """

    def __init__(self, file: ChatFile, settings: SourceSettings, seed: int, number: int) -> None:
        self.rows = len(file) if settings.first is None else min(len(file), settings.first)
        if not self.rows:
            raise ValueError(f"{settings.path}: it holds no sample")
        self.samples = max(1, round(settings.weight * self.rows))  # of each epoch
        starts = np.arange(0, self.rows, _BLOCK) if file.blocks is None else file.blocks.starts
        starts = starts[starts < self.rows]
        sizes = np.zeros(len(starts), np.int64) if file.blocks is None else file.blocks.sizes[: len(starts)]
        order = np.arange(len(starts))
        if self.samples % self.rows:
            order = hash_permutation(len(starts), seed, number, _ROUND)
        self._rows_from, self._sizes = starts[order], sizes[order]
        self._ends = np.cumsum(np.diff(starts, append=self.rows)[order])
        self._starts = self._ends - np.diff(starts, append=self.rows)[order]

    def row(self, epoch: int, place: int) -> int:
        """The row of the epoch's sample at a place."""
        at = (epoch * self.samples + place) % self.rows
        block = int(np.searchsorted(self._ends, at, side="right"))
        return int(self._rows_from[block]) + at - int(self._starts[block])

    def blocks(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the epoch where a block begins, the first being 0, and the blocks' sizes."""
        begin = epoch * self.samples % self.rows
        rounds = -(-(begin + self.samples) // self.rows)
        starts = (np.arange(rounds)[:, None] * self.rows + self._starts).ravel() - begin
        sizes = np.tile(self._sizes, rounds)
        # The block that the epoch begins in may have begun before it.
        first = int(np.searchsorted(starts, 0, side="right")) - 1
        taken = slice(first, int(np.searchsorted(starts, self.samples)))
        return np.maximum(starts[taken], 0), sizes[taken]


class Mixture:
    """The samples of several files. An epoch has as many of each in every epoch, source after source.

    Args:
        sources: the files and how often their samples are seen.
        root: folder of what `prepare` wrote.
        seed: of which part of a source comes first, where an epoch takes part of it.
        part: what is taken of each file; all of it unless told otherwise.

    Raises:
        ValueError, OSError: see SourceSettings.open; or a file holds no sample.
    """

    def __init__(
        self,
        sources: Sequence[SourceSettings],
        root: str | Path,
        seed: int = 0,
        part: Callable[[ChatFile], ChatFile] = lambda file: file,
    ) -> None:
        self.settings = tuple(sources)
        self.files = [part(settings.open(root)) for settings in self.settings]
        numbered = enumerate(zip(self.files, self.settings, strict=True))
        self._rounds = [_Round(file, settings, seed, number) for number, (file, settings) in numbered]
        self._ends = np.cumsum([one.samples for one in self._rounds])

    def __len__(self) -> int:
        """Samples of an epoch."""
        return int(self._ends[-1])

    def place(self, epoch: int, index: int) -> tuple[int, int]:
        """The source and the row of an epoch's sample."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        source = int(np.searchsorted(self._ends, index, side="right"))
        one = self._rounds[source]
        return source, one.row(epoch, index - int(self._ends[source]) + one.samples)

    def name(self, epoch: int, index: int) -> str:
        """File and row of an epoch's sample."""
        source, row = self.place(epoch, index)
        return self.files[source].name(row)

    def read(self, epoch: int, index: int) -> ImageChat:
        """An epoch's sample. Errors as of ChatFile."""
        source, row = self.place(epoch, index)
        return self.files[source].read(row).with_system(self.settings[source].system)

    def blocks(self, epoch: int) -> Blocks | None:
        """Which samples of an epoch are cheap to read together; None where all are alike."""
        windows = [file.blocks.window for file in self.files if file.blocks is not None]
        if not windows:
            return None
        starts, sizes = zip(*(one.blocks(epoch) for one in self._rounds), strict=True)
        begins = [end - one.samples for end, one in zip(self._ends, self._rounds, strict=True)]
        moved = [of_source + begin for of_source, begin in zip(starts, begins, strict=True)]
        # A source of images takes longer than one of texts: each is dealt out evenly.
        groups = np.repeat(np.arange(len(sizes)), list(map(len, sizes)))
        return Blocks(np.concatenate(moved), np.concatenate(sizes), min(windows), groups)

    @property
    def identity(self) -> str:
        """What must be the same for an epoch's samples to be the same, and to come in the same order."""
        digest = hashlib.sha256()
        for file, settings, one in zip(self.files, self.settings, self._rounds, strict=True):
            digest.update(f"{Path(settings.path).name} {one.rows} {one.samples} {settings.system} ".encode())
            digest.update(f"{file.identity} ".encode())
            if file.blocks is not None:
                digest.update(f"{file.blocks.window} ".encode())
                digest.update(np.concatenate([file.blocks.starts, file.blocks.sizes]).tobytes())
        return digest.hexdigest()[:12]
