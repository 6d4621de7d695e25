"""Opens a tar shard and locates its samples. A remote sample comes with its content, as it cannot be read again."""

import io
import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.shards.url_expansion import is_remote
from datamodules.vision_language.shards.webdataset_samples import TarSample, iter_samples
from engine.system.installation import PROGRAM

log = logging.getLogger("lockstep")

_BUFFER = 1 << 20  # bytes per request to a remote shard


class ShardInfo(NamedTuple):
    """Index entry of a shard."""

    size: int | None  # bytes; None if a remote storage does not report it
    samples: int
    files: str  # hash of the names and sizes of the files in the shard
    modified: int | None = None  # time of the last write (mtime) of a local shard, in nanoseconds
    changed: int | None = None  # time of the last change (ctime), which no program can set, in nanoseconds
    crc32: int | None = None  # of the offsets of its samples


class SampleLocation(NamedTuple):
    """Location of a sample."""

    shard: str
    number: int  # in the shard, from 0
    begin: int  # offset in the shard, in bytes
    sample: TarSample | None  # the sample itself, if the shard is remote

    @property
    def name(self) -> str:
        """Shard and number, for messages."""
        return f"{self.shard}, sample {self.number}"


class Shard(NamedTuple):
    """A tar archive of samples, with its index entry if it was indexed."""

    name: str  # a path, or a URL that fsspec supports
    info: ShardInfo | None = None
    table: Path | None = None
    """File with the offsets of the samples, valid as long as the shard is not modified."""

    def locations(self) -> Iterator[SampleLocation]:
        """Yield the locations of the samples in order.

        Raises:
            ValueError: the shard is corrupt, or has changed since it was indexed.
            OSError: the shard cannot be read.
        """
        if not is_remote(self.name):
            for number, begin in enumerate(self.begins().tolist()):
                yield SampleLocation(self.name, number, begin, None)
            return
        count = 0
        with open_shard(self.name) as file:
            self._compare("bytes", self.info and self.info.size, shard_size(file, self.name))
            for sample in iter_samples(file, self.name, keep=True):
                count += 1
                yield SampleLocation(self.name, sample.number, sample.begin, sample)
        self._compare("samples", self.info and self.info.samples, count)

    def begins(self) -> NDArray[np.int64]:
        """Return the offsets of the samples of a local shard, int64 [samples]. Raises the errors of `locations`."""
        stat = os.stat(self.name)
        self._compare("bytes", self.info and self.info.size, stat.st_size)
        begins = None
        # Archives are padded, so a rewritten archive often has the same size and other samples.
        if self.info is not None and (self.info.modified, self.info.changed) == (stat.st_mtime_ns, stat.st_ctime_ns):
            begins = self._indexed_begins()
        if begins is None:
            with open_shard(self.name) as file:
                begins = np.fromiter((sample.begin for sample in iter_samples(file, self.name, keep=False)), np.int64)
        self._compare("samples", self.info and self.info.samples, len(begins))
        return begins

    def _indexed_begins(self) -> NDArray[np.int64] | None:
        """Return the offsets of the index; None if they are missing or corrupt, so that the shard itself is read."""
        if self.info is None or self.table is None or not self.table.is_file():
            return None
        try:
            begins: NDArray[np.int64] = np.load(self.table, allow_pickle=False)
            if zlib.crc32(begins.tobytes()) == self.info.crc32:
                return begins
        except (ValueError, EOFError):
            pass
        log.warning("%s is corrupt; the offsets of %s are read from the shard. Delete the file", self.table, self.name)
        return None

    def _compare(self, unit: str, expected: int | None, found: int | None) -> None:
        if expected is not None and found is not None and found != expected:
            raise ValueError(
                f"{self.name}: found {found:,} {unit}, but {expected:,} when it was indexed; copy it again, or run "
                f"`{PROGRAM} prepare` if it was changed"
            )


@contextmanager
def open_shard(name: str) -> Iterator[BinaryIO]:
    """Open a shard for reading.

    Raises:
        OSError: the shard is missing, or its storage is unreachable.
    """
    if not is_remote(name):
        # The buffer has the length of a header, so the content between headers is not read.
        with open(name, "rb", buffering=512) as file:
            yield file
        return
    import fsspec

    with fsspec.open(name, "rb") as remote, io.BufferedReader(remote, _BUFFER) as file:
        yield file  # BufferedReader returns the requested number of bytes; a network read may return fewer


def shard_size(file: BinaryIO, name: str) -> int | None:
    """Return the size of an open shard in bytes; None if a remote storage does not report it."""
    if is_remote(name):
        assert isinstance(file, io.BufferedReader)  # from open_shard
        return getattr(file.raw, "size", None)
    return os.fstat(file.fileno()).st_size
