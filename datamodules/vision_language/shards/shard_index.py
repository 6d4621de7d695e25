"""Indexes the samples of tar shards once, so that a stream can skip samples without opening shards."""

import hashlib
import io
import json
import logging
import os
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.shards.shard import Shard, ShardInfo, open_shard, shard_size
from datamodules.vision_language.shards.url_expansion import is_remote
from datamodules.vision_language.shards.webdataset_samples import iter_samples
from engine.io.atomic_file import write_atomically
from engine.io.gitignored_folder import make_gitignored_folder
from engine.io.json_checksum import has_wrong_checksum, with_checksum

_NAME = "index.json"
_SAVE_INTERVAL = 100  # shards between two saves of the index

log = logging.getLogger("lockstep")


class ShardIndex:
    """Index of shards: `index.json`, and for each local shard a table of the offsets of its samples.

    Args:
        folder: folder of the index; it need not exist.

    Raises:
        ValueError: the folder has an invalid index.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._infos = _read(folder / _NAME)

    def shards(self, names: Sequence[str]) -> list[Shard]:
        """Return the shards with their index entries."""
        return [self._shard(name, self._infos.get(_address(name))) for name in names]

    def add(self, names: Sequence[str]) -> None:
        """Index the shards that are new or were modified.

        The call may be repeated and interrupted. If several processes call it at once, one indexes and the others wait.

        Raises:
            ValueError: a shard is corrupt.
            OSError: a shard cannot be read, or the index cannot be written.
        """
        from filelock import FileLock

        if all(map(self._is_current, names)):
            return
        make_gitignored_folder(self.folder)
        with FileLock(self.folder / f".{_NAME}.lock"):
            self._infos = _read(self.folder / _NAME)  # another process may have extended it
            self._index_shards([name for name in names if not self._is_current(name)])

    def _index_shards(self, new: Sequence[str]) -> None:
        for number, name in enumerate(new, 1):
            self._infos[_address(name)], begins = _index_shard(name)
            if not is_remote(name):
                table = io.BytesIO()
                np.save(table, begins, allow_pickle=False)
                write_atomically(self._table_path(name), table.getvalue())
            if number % _SAVE_INTERVAL == 0 or number == len(new):
                infos = {address: info._asdict() for address, info in sorted(self._infos.items())}
                text = json.dumps(with_checksum({"shards": infos}), indent=1)
                write_atomically(self.folder / _NAME, text.encode())
                log.info("tar shards: indexed %d of %d", number, len(new))

    def _shard(self, name: str, info: ShardInfo | None) -> Shard:
        return Shard(name, info, None if info is None or is_remote(name) else self._table_path(name))

    def _is_current(self, name: str) -> bool:
        info = self._infos.get(_address(name))
        if info is None or is_remote(name):
            return info is not None
        stat = os.stat(name)
        # The size is not sufficient: archives are padded, so a rewritten archive often has the same size. Nor is the
        # mtime, which `cp -p` sets.
        state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        return (info.size, info.modified, info.changed) == state and self._table_path(name).is_file()

    def _table_path(self, name: str) -> Path:
        digest = hashlib.sha256(_address(name).encode(errors="backslashreplace"))  # a name may not be UTF-8
        return self.folder / f"{digest.hexdigest()[:16]}.npy"


def _read(path: Path) -> dict[str, ShardInfo]:
    """Read an index; empty if the file does not exist."""
    infos = {}
    try:
        index = json.loads(path.read_bytes())
        if has_wrong_checksum(index):
            raise ValueError("a value has changed since it was written")
        for name, entry in index["shards"].items():
            size, *state = (
                None if entry.get(key) is None else int(entry[key]) for key in ("size", "modified", "changed", "crc32")
            )
            infos[name] = ShardInfo(size, int(entry["samples"]), str(entry["files"]), *state)
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not an index of shards ({error!r}); delete it to rebuild it") from error
    return infos


def _index_shard(name: str) -> tuple[ShardInfo, NDArray[np.int64]]:
    digest, begins = hashlib.sha256(), array("q")
    with open_shard(name) as file:
        size = shard_size(file, name)
        # The open file is measured, so that a file that is replaced in the meantime counts as changed.
        stat = None if is_remote(name) else os.fstat(file.fileno())
        for sample in iter_samples(file, name, keep=is_remote(name)):
            begins.append(sample.begin)
            # Names and sizes identify the shard without its path; contents would have to be read as a whole.
            for member in sample.files.values():
                digest.update(f"{member.name}\0{member.size}\0".encode())
    info = ShardInfo(size, len(begins), digest.hexdigest()[:16])
    if stat is not None:
        checksum = zlib.crc32(begins.tobytes())
        info = info._replace(modified=stat.st_mtime_ns, changed=stat.st_ctime_ns, crc32=checksum)
    return info, np.array(begins, np.int64)


def _address(name: str) -> str:
    return name if is_remote(name) else os.path.abspath(name)
