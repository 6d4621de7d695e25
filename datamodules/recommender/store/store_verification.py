"""Verifies a store at a start: a corrupt store is replaced by a new conversion before any process reads it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from datamodules.recommender.store.interaction_store import InteractionStore, StoreError
from engine.io.atomic_file import remove, temp_path

log = logging.getLogger("lockstep")


@contextmanager
def replacement_lock(root: Path) -> Iterator[None]:
    """Hold the lock of a process that writes or replaces a store.

    On a file system without locks (Lustre without `flock`, NFS without a lock service) several processes may convert at
    once. The first process to finish wins, see `write_store`.
    """
    from filelock import FileLock

    lock, is_locked = FileLock(root.with_name(f".{root.name}.lock")), True
    try:
        lock.acquire()
    except (NotImplementedError, OSError) as error:
        log.debug("%s cannot be locked (%s)", root, error)
        is_locked = False
    try:
        yield
    finally:
        if is_locked:
            lock.release()


def _open_if_whole(root: Path) -> InteractionStore | None:
    """Open a store; return None if it is not whole, or was replaced by another process at the same time."""
    try:
        # The inode changes if another process replaces the store while its files are read.
        folder = root.stat().st_ino
        store = InteractionStore.open(root)
        is_intact = store.find_corrupt_file() is None
        return store if is_intact and root.stat().st_ino == folder else None
    except (FileNotFoundError, StoreError):
        return None  # opened again under the lock, where the error is this store's own


def _open_or_find_problem(root: Path) -> InteractionStore | str:
    """Return the store, or why it cannot be used: a file is missing, truncated or corrupt, or of another version."""
    try:
        store = InteractionStore.open(root)
    except (FileNotFoundError, StoreError) as error:
        return str(error).partition("; ")[0]
    corrupt = store.find_corrupt_file()
    if corrupt is None:
        return store
    return f"{root / corrupt} is corrupt: its checksum differs from that of the conversion"


def open_verified(root: Path, convert: Callable[[], InteractionStore]) -> InteractionStore:
    """Open a store, compare all files with their checksums, and replace the store if any differs.

    One process of a node calls this before the others open the store (`prepare_data`, after which all processes wait
    for each other), so that all train on the same arrays. Several nodes with a common file system may call it at once.

    Args:
        root: folder of the store.
        convert: writes the store to `root` and opens it.

    Raises:
        StoreError: a corrupt store cannot be replaced.
    """
    started = time.monotonic()
    store = _open_if_whole(root)
    if store is not None:
        log.info("%s: checksums verified in %.1f s", root, time.monotonic() - started)
        return store
    try:
        # Look again under the lock: another process may have replaced the store in the meantime.
        with replacement_lock(root):
            if not root.exists():  # another process has been killed between its two renames
                return convert()
            found = _open_or_find_problem(root)
            if isinstance(found, InteractionStore):
                return found  # another process has replaced it
            log.warning("%s; converting the source again", found)
            aside = temp_path(root, "corrupt")
            # The corrupt store is kept until its replacement is complete, and gets out of the way of the rename.
            root.rename(aside)
            try:
                return convert()
            finally:
                remove(aside)
    except OSError as error:
        raise StoreError(
            f"{root}: a file is corrupt, and the store cannot be replaced ({error}); delete the folder to convert the "
            "source again"
        ) from error
