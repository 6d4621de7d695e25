"""What shards hold, found once: so that a stream knows what it is made of, and skips a shard without opening it."""

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from datamodules.vision_language.shards.names import is_remote
from datamodules.vision_language.shards.tar_samples import TarSample, tar_samples
from engine.durable_file import flush_folder, write_beside


INDEX = "shards.json"
"""What the index is called."""

_BUFFER = 1 << 20  # bytes asked for at once of what is not among the files
_SAID = 100  # shards after which it is said how far it is

log = logging.getLogger("lockstep")


class Known(NamedTuple):
    """What is known of a shard."""

    size: int | None  # bytes, where they can be told without reading it
    samples: int
    files: str  # hash of the names and sizes of its files


class Shard(NamedTuple):
    """A tar archive of samples."""

    name: str  # a path, or an address that fsspec knows
    known: Known | None = None

    def samples(self) -> Iterator[TarSample]:
        """Its samples in their order; of a file without their contents.

        Raises:
            ValueError: it is damaged, or not what it was when it was looked at.
            OSError: it cannot be read.
        """
        count = 0
        with open_shard(self.name) as file:
            self._compare("bytes", _size(file, self.name))
            for sample in tar_samples(file, self.name, keep=is_remote(self.name)):
                count += 1
                yield sample
        self._compare("samples", count)

    def _compare(self, what: Literal["bytes", "samples"], found: int | None) -> None:
        expected = None if self.known is None else self.known.size if what == "bytes" else self.known.samples
        if expected is not None and found is not None and found != expected:
            raise ValueError(
                f"{self.name}: found {found:,} {what}, but {expected:,} when it was looked at for the index; copy it "
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


def _size(file: BinaryIO, name: str) -> int | None:
    """In bytes; of what is not among the files, if its place tells."""
    if is_remote(name):
        return getattr(file.raw, "size", None)  # type: ignore[attr-defined]
    return os.fstat(file.fileno()).st_size


class ShardIndex:
    """What is known of shards, in a file.

    Args:
        path: of a JSON file, which need not be there yet.

    Raises:
        ValueError: it is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, Known] = {}
        try:
            shards = json.loads(path.read_bytes())["shards"]
            for name, one in shards.items():
                size = None if one["size"] is None else int(one["size"])
                self._known[name] = Known(size, int(one["samples"]), str(one["files"]))
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not an index of shards ({error!r}); delete it, and it is made again") from error

    def shards(self, names: Sequence[str]) -> list[Shard]:
        """The shards, with what is known of them."""
        return [Shard(name, self._known.get(_address(name))) for name in names]

    def add(self, names: Sequence[str]) -> None:
        """Looks at the shards that are new, or files of another size than they had, and writes the index.

        Raises:
            ValueError: a shard is damaged.
            OSError: a shard cannot be read, or the index not be written.
        """
        new = [name for name in names if not self._is_current(name)]
        for number, name in enumerate(new, 1):
            self._known[_address(name)] = _look_at(name)
            if number % _SAID == 0 or number == len(new):
                log.info("tar shards: %d of %d looked at", number, len(new))
        if new:
            shards = {name: known._asdict() for name, known in sorted(self._known.items())}
            text = json.dumps({"shards": shards}, indent=1).encode()
            written = write_beside(self.path, lambda file: file.write(text) and None, lambda path: None)
            os.replace(written, self.path)
            flush_folder(self.path.parent)

    def _is_current(self, name: str) -> bool:
        known = self._known.get(_address(name))
        return known is not None and (is_remote(name) or known.size == os.path.getsize(name))


def _look_at(name: str) -> Known:
    digest, count = hashlib.sha256(), 0
    for sample in Shard(name).samples():
        count += 1
        for member in sample.files.values():
            digest.update(f"{member.name}\0{member.size}\0".encode())
    with open_shard(name) as file:
        return Known(_size(file, name), count, digest.hexdigest()[:16])


def _address(name: str) -> str:
    return name if is_remote(name) else os.path.abspath(name)
