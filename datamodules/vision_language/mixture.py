"""Mixes several files of chats: the samples of an epoch, repeated according to their weights."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.chat_file import ChatFile, ImageChat
from datamodules.vision_language.source_config import SourceSettings
from engine.data.epoch_order import ShuffleBlocks
from engine.determinism.stateless_rng import hash_permutation

_ORDER = 0x2047D  # hash key of the order of blocks
_BLOCK = 256  # rows of a block, in files where any row costs the same


class _WeightedSource:
    """Rows of a source in cycles: each epoch continues where the previous epoch ended.

    If an epoch uses part of the rows, the blocks of the file are visited in a fixed random order. The part is then a
    sample of all rows, and blocks are still read as a whole. Otherwise the rows keep their order.
    """

    def __init__(self, file: ChatFile, settings: SourceSettings, seed: int, number: int) -> None:
        self.rows = len(file) if settings.first is None else min(len(file), settings.first)
        if not self.rows:
            raise ValueError(f"{settings.path}: found no sample")
        self.samples = max(1, round(settings.weight * self.rows))  # per epoch
        # Without row groups, blocks of equal length make the fixed random order of a part.
        starts = np.arange(0, self.rows, _BLOCK) if file.blocks is None else file.blocks.starts
        starts = starts[starts < self.rows]
        sizes = np.zeros(len(starts), np.int64) if file.blocks is None else file.blocks.sizes[: len(starts)]
        order = np.arange(len(starts))
        if self.samples % self.rows:  # an epoch uses part of a cycle
            order = hash_permutation(len(starts), seed, number, _ORDER)
        self._rows_from, self._sizes = starts[order], sizes[order]
        self._ends = np.cumsum(np.diff(starts, append=self.rows)[order])
        self._starts = self._ends - np.diff(starts, append=self.rows)[order]

    def row(self, epoch: int, index: int) -> int:
        """Return the row of the sample at a position of an epoch."""
        # Epochs are windows of an endless cycle over the rows, so all rows are used equally often.
        at = (epoch * self.samples + index) % self.rows
        block = int(np.searchsorted(self._ends, at, side="right"))
        return int(self._rows_from[block]) + at - int(self._starts[block])

    def blocks(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of an epoch where blocks begin, the first of them 0, and the sizes of the blocks."""
        begin = epoch * self.samples % self.rows
        # An epoch with a weight above 1 passes over the rows several times.
        cycles = -(-(begin + self.samples) // self.rows)
        starts = (np.arange(cycles)[:, None] * self.rows + self._starts).ravel() - begin
        sizes = np.tile(self._sizes, cycles)
        # The first block of the epoch may begin in the previous epoch.
        first = int(np.searchsorted(starts, 0, side="right")) - 1
        taken = slice(first, int(np.searchsorted(starts, self.samples)))
        return np.maximum(starts[taken], 0), sizes[taken]


class Mixture:
    """Samples of several files, source after source. Every epoch has the same number of samples of each source.

    Args:
        sources: the files and their weights.
        root: folder of what `prepare` wrote.
        seed: seed of the order of blocks in sources of which an epoch uses a part.
        part: function that returns the used rows of a file; None for all rows.

    Raises:
        ValueError, OSError: see SourceSettings.open; or a file has no sample.
    """

    def __init__(
        self,
        sources: Sequence[SourceSettings],
        root: str | Path,
        seed: int = 0,
        part: Callable[[ChatFile], ChatFile] | None = None,
    ) -> None:
        self.settings = tuple(sources)
        files = (settings.open(root) for settings in self.settings)
        self.files = [file if part is None else part(file) for file in files]
        numbered = enumerate(zip(self.files, self.settings, strict=True))
        self._sources = [_WeightedSource(file, settings, seed, number) for number, (file, settings) in numbered]
        self._ends = np.cumsum([source.samples for source in self._sources])

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        return int(self._ends[-1])

    def locate(self, epoch: int, index: int) -> tuple[int, int]:
        """Return the index of the source of a sample, and its row."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        source = self._sources[number]
        return number, source.row(epoch, index - int(self._ends[number]) + source.samples)

    def name(self, epoch: int, index: int) -> str:
        """Return the file and row of a sample of an epoch."""
        source, row = self.locate(epoch, index)
        return self.files[source].name(row)

    def read(self, epoch: int, index: int) -> ImageChat:
        """Read a sample of an epoch. Raises the errors of ChatFile."""
        source, row = self.locate(epoch, index)
        return self.files[source].read(row).with_system(self.settings[source].system)

    def blocks(self, epoch: int) -> ShuffleBlocks | None:
        """Return the blocks of samples that are cheap to read together; None if all samples cost the same."""
        windows = [file.blocks.window for file in self.files if file.blocks is not None]
        if not windows:
            return None
        starts, sizes = zip(*(source.blocks(epoch) for source in self._sources), strict=True)
        begins = [end - source.samples for end, source in zip(self._ends, self._sources, strict=True)]
        shifted = [source_starts + begin for source_starts, begin in zip(starts, begins, strict=True)]
        # Samples with images take longer than samples of text, so each source is spread evenly over the epoch.
        groups = np.repeat(np.arange(len(sizes)), list(map(len, sizes)))
        return ShuffleBlocks(np.concatenate(shifted), np.concatenate(sizes), min(windows), groups)

    @property
    def identity(self) -> str:
        """Hash of everything that determines the samples of an epoch and their order."""
        digest = hashlib.sha256()
        for file, settings, source in zip(self.files, self.settings, self._sources, strict=True):
            digest.update(f"{Path(settings.path).name} {source.rows} {source.samples} {settings.system} ".encode())
            digest.update(f"{file.identity} ".encode())
            if file.blocks is not None:
                digest.update(f"{file.blocks.window} ".encode())
                digest.update(np.concatenate([file.blocks.starts, file.blocks.sizes]).tobytes())
        return digest.hexdigest()[:12]
