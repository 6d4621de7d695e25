"""One training at a time writes into a run's folder."""

import logging
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

log = logging.getLogger("lockstep")

_PATIENCE = 5.0
"""Seconds: after a restart the process that held the lock may still be ending."""


def lock_run(folder: Path, patience: float = _PATIENCE) -> BaseFileLock | None:
    """Held until it is released or the process ends, however it ends; None where the file system has no locks.

    Raises:
        BlockingIOError: another training holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=patience)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(
            f"another training is writing into {folder} (it holds {lock.lock_file}): wait for it, end it, or choose "
            "another --run_name"
        ) from None
    except (NotImplementedError, PermissionError) as error:
        log.warning("%s cannot be locked (%s): see to it that no other training uses this folder", folder, error)
        return None
    return lock
