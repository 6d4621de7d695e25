"""The log of a run in its folder: train.log for people, log.jsonl for programs."""

import logging
import threading
from pathlib import Path

from engine.appended_file import AppendedFile
from engine.events import OF_A_PROCESS, event, event_of

log = logging.getLogger("lockstep")


_ONE_AT_A_TIME = threading.RLock()


class _File(logging.Handler):
    """All files of the log have one lock.

    A file that cannot be written says so in the others. With a lock each, two threads whose files refuse at the same
    time would wait for each other for ever.
    """

    def createLock(self) -> None:  # noqa: N802 (the standard library's)
        super().createLock()
        self.lock = _ONE_AT_A_TIME


class LogFile(_File):
    """Writes the lines of train.log; the standard library's prints a page for each line that a full disk refuses."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = AppendedFile(path)

    def emit(self, record: logging.LogRecord) -> None:
        self._file.write(self.format(record) + "\n")

    def close(self) -> None:
        self._file.close()
        super().close()


class JsonLogFile(_File):
    """Writes log.jsonl, and on another process than the first log-PROCESS.jsonl.

    The file is made with its first line, so a process that has nothing to say has none. What all processes say alike,
    the first one's file has.

    Args:
        folder: of the run.
        process: the global rank.
    """

    def __init__(self, folder: Path, process: int) -> None:
        super().__init__()
        self.path = folder / (f"log-{process}.jsonl" if process else "log.jsonl")
        self._file: AppendedFile | None = None
        self._refused = False
        if process:
            self.addFilter(_is_of_a_process)

    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None and not self._refused:
            self._open()
        if self._file is not None:
            self._file.write(self.format(record) + "\n")

    def _open(self) -> None:
        try:
            self._file = AppendedFile(self.path, make_folder=False)
        except FileNotFoundError:
            # The start was refused, and the first process has taken its folder away: it has said why.
            return
        except OSError as error:
            self._refused = True
            said = "%s cannot be written: %s. The console, and train.log of the first process, have the same"
            log.error(said, self.path, error, extra=event("disk_full", path=str(self.path), reason=str(error)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def _is_of_a_process(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or event_of(record)[0] in OF_A_PROCESS
