"""What several logs in a row tell and one does not: waiting for data that goes on, memory that goes on rising."""

_START = 3
"""Logs in the beginning that tell nothing: workers start, allocators fill."""

_MUCH = 0.2
"""The share of the time that is too much to wait for data, and the part by which memory has risen too much."""

_WAITING_LOGS = 5
_WAITED = 10.0
"""Seconds in them that a process has waited in the mean: of less nobody need hear."""

_RISING_LOGS = 20


class LongWaits:
    """Whether processes have waited for data more than a fifth of the time in each of many logs."""

    def __init__(self) -> None:
        self._before, self._logs, self._waited = 0, 0, 0.0

    def seen_with(self, share: float, seconds: float) -> bool:
        """
        Args:
            share: of the time since the last log, in the mean of the processes.
            seconds: since the last log.
        """
        self._before += 1
        if self._before <= _START or share <= _MUCH:
            self._logs, self._waited = 0, 0.0
            return False
        self._logs, self._waited = self._logs + 1, self._waited + share * seconds
        return self._logs >= _WAITING_LOGS and self._waited >= _WAITED


class Growth:
    """Whether memory has risen from log to log, many times without a break, and by a fifth.

    Attributes:
        logs: how many so far.
        first: bytes where the rise began.
    """

    def __init__(self) -> None:
        self._before, self.logs, self.first, self._last = 0, 0, 0, 0

    def seen_with(self, size: int) -> bool:
        """
        Args:
            size: bytes of the process with most.
        """
        self._before += 1
        if self._before <= _START or size <= self._last or not self.first:
            self.logs, self.first = 0, size
        else:
            self.logs += 1
        self._last = size
        return self.logs >= _RISING_LOGS and size > (1 + _MUCH) * self.first
