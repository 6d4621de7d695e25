"""What shards hold, found once: so that a stream knows what it is made of, and opens no shard to find a sample."""

import hashlib
import json
import logging
import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.shards.names import is_remote
from datamodules.vision_language.shards.shard import Known, Shard, open_shard, size_of
from datamodules.vision_language.shards.tar_samples import tar_samples
from engine.durable_file import flush_folder, write_beside

_NAME = "index.json"
_SAID = 100  # shards after which it is said, and kept, how far it is

log = logging.getLogger("lockstep")


class ShardIndex:
    """What is known of shards: `index.json`, and for each that is a file a table of where its samples begin.

    Args:
        folder: of these files; it need not be there yet.

    Raises:
        ValueError: an index is there that is none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = _read(folder / _NAME)

    def shards(self, names: Sequence[str]) -> list[Shard]:
        """The shards, with what is known of them."""
        return [self._shard(name, self._known.get(_address(name))) for name in names]

    def add(self, names: Sequence[str]) -> None:
        """Looks at the shards that are new, or files that were written to since, and writes down what they hold.

        It may be repeated and interrupted. Of several processes that do it at once one looks, the others wait.

        Raises:
            ValueError: a shard is damaged.
            OSError: a shard cannot be read, or the index not be written.
        """
        from filelock import FileLock

        if all(map(self._is_current, names)):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f".{_NAME}.lock"):
            self._known = _read(self.folder / _NAME)  # with what others have looked at
            self._look_at([name for name in names if not self._is_current(name)])

    def _look_at(self, new: Sequence[str]) -> None:
        for number, name in enumerate(new, 1):
            self._known[_address(name)], begins = _look_at(name)
            if not is_remote(name):
                _write(self._table(name), lambda file, begins=begins: np.save(file, begins, allow_pickle=False))
            if number % _SAID == 0 or number == len(new):
                known = {address: one._asdict() for address, one in sorted(self._known.items())}
                text = json.dumps({"shards": known}, indent=1).encode()
                _write(self.folder / _NAME, lambda file, text=text: file.write(text))
                log.info("tar shards: %d of %d looked at", number, len(new))

    def _shard(self, name: str, known: Known | None) -> Shard:
        return Shard(name, known, None if known is None or is_remote(name) else self._table(name))

    def _is_current(self, name: str) -> bool:
        known = self._known.get(_address(name))
        if known is None or is_remote(name):
            return known is not None
        found = os.stat(name)
        # Not the size alone: archives are padded, so one that was written again has often the size that it had.
        return (known.size, known.modified) == (found.st_size, found.st_mtime_ns) and self._table(name).is_file()

    def _table(self, name: str) -> Path:
        return self.folder / f"{hashlib.sha256(_address(name).encode()).hexdigest()[:16]}.npy"


def _read(path: Path) -> dict[str, Known]:
    """What an index says; nothing where there is none."""
    known = {}
    try:
        for name, one in json.loads(path.read_bytes())["shards"].items():
            size, modified = (None if one.get(key) is None else int(one[key]) for key in ("size", "modified"))
            known[name] = Known(size, int(one["samples"]), str(one["files"]), modified)
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not an index of shards ({error!r}); delete it, and it is made again") from error
    return known


def _look_at(name: str) -> tuple[Known, NDArray[np.int64]]:
    digest, begins = hashlib.sha256(), array("q")
    with open_shard(name) as file:
        size = size_of(file, name)
        modified = None if is_remote(name) else os.fstat(file.fileno()).st_mtime_ns
        for sample in tar_samples(file, name, keep=is_remote(name)):
            begins.append(sample.begin)
            for member in sample.files.values():
                digest.update(f"{member.name}\0{member.size}\0".encode())
    return Known(size, len(begins), digest.hexdigest()[:16], modified), np.array(begins, np.int64)


def _address(name: str) -> str:
    return name if is_remote(name) else os.path.abspath(name)


def _write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    os.replace(write_beside(path, write, lambda hidden: None), path)
    flush_folder(path.parent)
