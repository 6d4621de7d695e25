"""Appends records to a file that survives a full disk without losing or splitting any."""

import io
import logging
import threading
from collections import deque
from pathlib import Path

from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

MAX_WAITING = 20_000
"""Largest number of records that wait in memory for the disk."""


class AppendOnlyFile:
    """Appends records to a file, each at once.

    Records that the disk refuses wait in memory and are written when there is space again. If the disk took a part of a
    record, the rest follows first, so no record is split. The first failure and the recovery are logged once each.

    Args:
        path: the file. Existing content is kept.
        make_folder: create the folder if it does not exist.
        has_lines: whether records are lines. The line that a killed process left incomplete is ended first, so that the
            next record is a line of its own.

    Raises:
        OSError: the file cannot be opened. Later failures are only logged.
    """

    def __init__(self, path: Path, make_folder: bool = True, has_lines: bool = True) -> None:
        self.path = path
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a record is with the system when `write` returns, so a kill loses none.
        self._file = path.open("ab", buffering=0)
        self._waiting: deque[bytes] = deque()
        # Never waited for: another thread, a signal handler or the warning below may write in the middle of a flush.
        # They leave their record in the queue to the holder of the lock.
        self._lock = threading.Lock()
        self._failing, self._lost = False, 0
        if has_lines and _ends_within_line(path):
            self.write("\n")

    def write(self, record: str | bytes) -> None:
        """Append a record. If too many records wait already, it is dropped and counted."""
        if len(self._waiting) < MAX_WAITING:
            # The name of a file may have bytes that are not UTF-8, which Python reads as lone surrogates.
            self._waiting.append(record.encode(errors="backslashreplace") if isinstance(record, str) else record)
        else:
            self._lost += 1
        self.flush()

    def flush(self) -> None:
        """Write the waiting records, unless another thread does so. Logs the first failure; the next call retries."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._write_waiting()
            if self._failing:
                self._failing = False
                lost = f"; {self._lost} entries are lost" if self._lost else ""
                log.warning("%s can be written again%s", self.path, lost)
        except OSError as error:
            if not self._failing:
                self._failing = True
                log.warning(
                    "%s cannot be written: %s. Its new entries wait in memory", self.path, error,
                    extra=event("disk_full", path=str(self.path), reason=str(error)),
                )  # fmt: skip
        finally:
            self._lock.release()

    def _write_waiting(self) -> None:
        while self._waiting:
            record = self._waiting[0]
            written = self._file.write(record)
            if written == len(record):
                self._waiting.popleft()
            else:
                # A full disk has taken a part.
                self._waiting[0] = record[written:]

    def close(self) -> None:
        """Write the waiting records and close the file. Logs how many records are lost."""
        if self._file.closed:
            return
        self.flush()
        if self._waiting:
            log.warning("the last %d entries of %s are lost", len(self._waiting) + self._lost, self.path)
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed


def _ends_within_line(path: Path) -> bool:
    """Return whether a file has an incomplete last line; False for what is no file, such as a pipe."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if not file.seek(0, io.SEEK_END):
                return False
            file.seek(-1, io.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # it may be written and not read
        return False
