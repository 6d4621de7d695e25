"""Keeps the first log records of a process until the files of the run are open."""

import logging

from typing_extensions import override

_CAPACITY = 1000


class StartupLogBuffer(logging.Handler):
    """Handler that keeps the first records and replays them to handlers that are added later.

    `logging.handlers.MemoryHandler` does not fit: it flushes to one target and then forgets its records, but here
    several handlers (the text log, the JSON log, the metrics endpoint) each need all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if len(self._records) < _CAPACITY:
            self._records.append(record)

    def replay_to(self, handler: logging.Handler) -> None:
        """Pass the records to a handler, subject to its level."""
        for record in self._records:
            if record.levelno >= handler.level:
                handler.handle(record)


def replay_startup_log(log: logging.Logger, handler: logging.Handler) -> None:
    """Replay the records of a logger's StartupLogBuffer, if it has one, to a handler."""
    for buffer in [handler for handler in log.handlers if isinstance(handler, StartupLogBuffer)]:
        buffer.replay_to(handler)
