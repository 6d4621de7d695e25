"""Locks a run directory while a training writes into it, and reports if the kernel killed the previous start."""

import json
import logging
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from engine.system.host_memory import oom_counter_id, oom_kill_message, oom_kills
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

RUNNING = ".running.json"
"""File in the run directory while a training runs: the kernel's count of out-of-memory kills when it started."""

BUSY = "another training is writing into"
"""Begin of the error if another training holds the lock."""

_TIMEOUT = 5.0
"""Seconds. After a restart the process that held the lock may still be ending."""


def lock_run(directory: Path, timeout: float = _TIMEOUT) -> BaseFileLock | None:
    """Lock a run directory until the lock is released or the process ends.

    Args:
        directory: created if it does not exist.
        timeout: seconds to wait for another holder.

    Returns:
        The lock; None where the file system has no locks.

    Raises:
        BlockingIOError: another training holds the lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / ".lock", timeout=timeout)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(
            f"{BUSY} {directory} (it holds {lock.lock_file}): wait for it, end it, or choose another --run_name"
        ) from None
    except (NotImplementedError, PermissionError) as error:
        log.warning("%s cannot be locked (%s): make sure that no other training uses it", directory, error)
        return None
    return lock


def record_start(directory: Path) -> None:
    """Report whether the previous start was OOM-killed, and record this start; called by the holder of the lock.

    A process that the kernel kills cannot report it. With several ranks `engine.health.process_monitor` does, on a
    surviving rank; this covers a single process, and all ranks killed at once.
    """
    path = directory / RUNNING
    counter = oom_counter_id()
    try:
        previous = json.loads(path.read_text(encoding="utf-8"))
        # The counts of two control groups, or of two boots of the machine, cannot be compared.
        if counter and previous["counter"] == counter:
            killed = oom_kill_message(previous["kills"], "the last start")
            if killed:
                message = "the last start of this run did not end by itself;%s"
                log.warning(message, killed, extra=event("out_of_memory", error=killed.strip()))
    except FileNotFoundError:
        pass
    except (ValueError, LookupError, TypeError) as error:  # a kill may leave the file incomplete
        log.debug("%s cannot be read: %s", path, error)
    path.write_text(json.dumps({"counter": counter, "kills": oom_kills()}), encoding="utf-8")


def record_end(directory: Path) -> None:
    """Record that the training has ended by itself."""
    (directory / RUNNING).unlink(missing_ok=True)
