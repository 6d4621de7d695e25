"""Writes log records into the run's folder: train.log for people, log.jsonl for programs."""

import logging
import threading
from pathlib import Path

from typing_extensions import override

from engine.telemetry.append_file import AppendOnlyFile
from engine.telemetry.log_events import RANK_LOCAL_EVENTS, event, event_of

log = logging.getLogger("lockstep")

_SHARED_LOCK = threading.RLock()


class _FileHandler(logging.Handler):
    """Base class of the file handlers, which share one lock.

    A file that cannot be written logs a warning, which the other file receives. With one lock per handler, two threads
    whose files fail at the same time would deadlock.
    """

    def createLock(self) -> None:  # noqa: N802 (name in the standard library)
        super().createLock()
        self.lock = _SHARED_LOCK


class LogFile(_FileHandler):
    """Writes train.log. Unlike logging.FileHandler, it prints no traceback for each line that a full disk refuses."""

    def __init__(self, path: Path) -> None:
        self._file = AppendOnlyFile(path)  # first: once it is known to logging, a handler is closed at exit
        super().__init__()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._file.write(self.format(record) + "\n")

    @override
    def close(self) -> None:
        self._file.close()
        super().close()


class JsonLogFile(_FileHandler):
    """Writes log.jsonl on rank 0, and log-RANK.jsonl on other ranks.

    The file is created with the first record. Other ranks write only errors and events that rank 0 may not have.

    Args:
        folder: folder of the run.
        rank: global rank.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__()
        self.path = folder / (f"log-{rank}.jsonl" if rank else "log.jsonl")
        self._file: AppendOnlyFile | None = None
        self._failed = False
        # Rank 0 has all other records.
        if rank:
            self.addFilter(_is_rank_specific)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        # Opened with the first record, so that a rank without records leaves no file.
        if self._file is None and not self._failed:
            self._open()
        if self._file is not None:
            self._file.write(self.format(record) + "\n")

    def _open(self) -> None:
        try:
            self._file = AppendOnlyFile(self.path, make_folder=False)
        except FileNotFoundError:
            # The run was refused, and rank 0 has removed its folder and reported the reason.
            return
        except OSError as error:
            self._failed = True
            message = "%s cannot be written: %s. The console and rank 0's train.log have its records"
            log.error(message, self.path, error, extra=event("disk_full", path=str(self.path), reason=str(error)))

    @override
    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def _is_rank_specific(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or event_of(record)[0] in RANK_LOCAL_EVENTS
