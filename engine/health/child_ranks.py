"""Watches and kills the ranks that this process has started, as Lightning's launcher does."""

import multiprocessing
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.health.heartbeat import FailureReport

_KILL_WAIT = 5.0
"""Seconds until a killed process has ended."""


class ChildRanks:
    """Ranks that this process has started.

    Args:
        processes: in order of rank.
        first_rank: rank of the first of them.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[Any]], first_rank: int) -> None:
        self._processes, self._first_rank = processes, first_rank
        self._exit_seen: dict[int, int] = {}

    def find_exit(self, exchanges: int, has_left: Callable[[int], bool]) -> FailureReport | None:
        """Return a report on a rank that has ended with an error, None if there is none.

        Args:
            exchanges: number of exchanges with the store. Two exchanges after a rank has ended, all that it had
                reported is read.
            has_left: whether a rank has left the run on purpose.
        """
        for rank, process in enumerate(self._processes, start=self._first_rank):
            code = process.poll()
            if code and exchanges - self._exit_seen.setdefault(rank, exchanges) > 1 and not has_left(rank):
                how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                return FailureReport(rank, f"rank {rank} {how}")
        return None

    def kill(self, timeout: float) -> None:
        """End these processes and the loader workers of this process. SIGKILL also ends a suspended process.

        Args:
            timeout: seconds that they have to end by themselves.
        """
        # One deadline for all of them, not one each.
        deadline = time.monotonic() + timeout
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_KILL_WAIT)
        for worker in multiprocessing.active_children():
            worker.kill()
