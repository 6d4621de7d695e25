"""A tar shard, and where its samples are: of a file their places, of anything else they themselves."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.shards.names import is_remote
from datamodules.vision_language.shards.tar_samples import TarSample, tar_samples

_BUFFER = 1 << 20  # bytes asked for at once of what is not among the files


class Known(NamedTuple):
    """What is known of a shard."""

    size: int | None  # bytes, where they can be told without reading it
    samples: int
    files: str  # hash of the names and sizes of its files
    modified: int | None = None  # nanoseconds: when a file of this machine's was last written to


class Place(NamedTuple):
    """Where a sample is."""

    shard: str
    number: int  # in the shard, from 0
    begin: int  # bytes from the shard's beginning
    kept: TarSample | None  # of what can only be read on

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.shard}, sample {self.number}"


class Shard(NamedTuple):
    """A tar archive of samples."""

    name: str  # a path, or an address that fsspec knows
    known: Known | None = None
    table: Path | None = None
    """File of where the samples begin, of one whose samples are known: it is not opened to find them unless changed."""

    def places(self) -> Iterator[Place]:
        """Its samples in their order.

        Raises:
            ValueError: it is damaged, or not what it was when it was looked at.
            OSError: it cannot be read.
        """
        if not is_remote(self.name):
            for number, begin in enumerate(self.begins().tolist()):
                yield Place(self.name, number, begin, None)
            return
        count = 0
        with open_shard(self.name) as file:
            self._compare("bytes", self.known and self.known.size, size_of(file, self.name))
            for sample in tar_samples(file, self.name, keep=True):
                count += 1
                yield Place(self.name, sample.number, sample.begin, sample)
        self._compare("samples", self.known and self.known.samples, count)

    def begins(self) -> NDArray[np.int64]:
        """[samples] where each begins, in bytes. Of a file; errors as of `places`."""
        found = os.stat(self.name)
        self._compare("bytes", self.known and self.known.size, found.st_size)
        # Archives are padded: one that was written again has often the size that it had, and other samples.
        if self.table is not None and self.known is not None and self.known.modified == found.st_mtime_ns:
            begins = np.load(self.table, allow_pickle=False)
        else:
            with open_shard(self.name) as file:
                begins = np.fromiter((one.begin for one in tar_samples(file, self.name, keep=False)), np.int64)
        self._compare("samples", self.known and self.known.samples, len(begins))
        return begins

    def _compare(self, what: str, known: int | None, found: int | None) -> None:
        if known is not None and found is not None and found != known:
            raise ValueError(
                f"{self.name}: found {found:,} {what}, but {known:,} when it was looked at for the index; copy it "
                "again, or run `train.py prepare` if it was changed"
            )


@contextmanager
def open_shard(name: str) -> Iterator[BinaryIO]:
    """A shard's bytes.

    Raises:
        OSError: it is not there, or its place does not answer.
    """
    if not is_remote(name):
        # A buffer of a header's length: nothing is read of what lies between headers.
        with open(name, "rb", buffering=512) as file:
            yield file
        return
    import fsspec

    with fsspec.open(name, "rb") as remote, io.BufferedReader(remote, _BUFFER) as file:
        yield file  # which gives as many bytes as are asked for; over a network there may come fewer at once


def size_of(file: BinaryIO, name: str) -> int | None:
    """Of an open shard, in bytes; of what is not among the files, if its place tells."""
    if is_remote(name):
        return getattr(file.raw, "size", None)  # type: ignore[attr-defined]
    return os.fstat(file.fileno()).st_size
