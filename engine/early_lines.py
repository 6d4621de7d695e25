"""What is said before the run's folder is known, for the files in it."""

import logging

_KEPT = 1000


class EarlyLines(logging.Handler):
    """Keeps the first lines of a process, such as which checkpoint was passed over, until the run's files are open."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._records) < _KEPT:
            self._records.append(record)

    def repeat_to(self, handler: logging.Handler) -> None:
        """Gives it what was said so far, as if it had been there."""
        for record in self._records:
            if record.levelno >= handler.level:
                handler.handle(record)


def repeat_early_lines(log: logging.Logger, handler: logging.Handler) -> None:
    """`EarlyLines.repeat_to` of those of a logger, where there are any."""
    for early in [one for one in log.handlers if isinstance(one, EarlyLines)]:
        early.repeat_to(handler)
