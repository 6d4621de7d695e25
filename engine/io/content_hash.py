"""Hashes the content of source files, for the names of caches: data that have changed never match an old cache.

`ContentHashes.get` returns the SHA-256 of the whole content. A file of more than `SMALL` bytes is not read again while
its state is the remembered one: size, time of the last write (mtime), time of the last change (ctime) and 16 sampled
blocks. Which changes are found:

- Always found, whatever the clock and the times are: every change of a file of at most `SMALL` bytes; in a larger file
  every change of its size and of a sampled block, of which the first and the last 64 KiB are two.
- Found between the sampled blocks of a larger file: every change that moves its mtime or its ctime. No program can set
  the ctime, so `cp -p`, `touch -d` and `rsync -t` are found, and neither a time in the future nor a clock that was set
  back hides them.
- Not found: a change between the sampled blocks of a larger file that leaves size, mtime and ctime. This takes a second
  write within a tick of the file system's clock (4 ms on ext4), or a file system without a ctime (FAT, Windows).
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.io.atomic_file import write_atomically
from engine.io.file_hash import hash_file, hash_samples

log = logging.getLogger("lockstep")

SMALL = 16 * 2**20
"""Bytes of a file up to which it is read as a whole at each start."""

REMEMBERED = "content_hashes.json"
"""File in the folder of a cache: for each large file its state and its hash."""


class ContentHashes:
    """Computes hashes of files, and remembers the hashes of large files in the folders of caches.

    Args:
        folders: folders that may have remembered hashes; they need not exist.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._remembered = [_read(folder / REMEMBERED) for folder in folders]
        self._new: dict[str, dict[str, Any]] = {}

    def get(self, path: Path) -> str:
        """Return the SHA-256 of a file's content. See the module for the changes that are found.

        Raises:
            OSError: the file cannot be read.
        """
        # All names of a file share an entry.
        path = path.resolve()
        if path.stat().st_size <= SMALL:
            return hash_file(path)
        state = _state(path)  # before the content is read, so that a later change is detected
        for entries in (self._new, *self._remembered):
            entry = entries.get(str(path))
            if isinstance(entry, dict) and entry.get("state") == state and isinstance(entry.get("sha256"), str):
                return str(entry["sha256"])
        digest = hash_file(path)
        self._new[str(path)] = {"state": state, "sha256": digest}
        return digest

    def save(self, folder: Path) -> None:
        """Remember the hashes that were computed in a folder, if it is writable; otherwise they are computed again."""
        if not self._new:
            return
        path = folder / REMEMBERED
        # Read again: another process may have remembered other files meanwhile.
        text = json.dumps({**_read(path), **self._new}, indent=1).encode()
        try:
            write_atomically(path, text)
        except OSError as error:
            log.debug("%s cannot be written: %s", path, error)


def path_for_key(path: Path, cache: Path) -> str:
    """Return the path of a source file for the key of a cache.

    The path is relative if the file lies in or below the folder of the cache, so that both can be moved together;
    otherwise it is absolute. Data sets in different folders therefore never share an entry of a common cache.

    Args:
        path: the source file.
        cache: folder of the cache.
    """
    path, cache_parent = path.resolve(), cache.resolve().parent
    return path.relative_to(cache_parent).as_posix() if path.is_relative_to(cache_parent) else str(path)


def _state(path: Path) -> list[Any]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, hash_samples(path)]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):  # a hash that is not remembered is computed
        return {}
    return content if isinstance(content, dict) else {}
