"""Measures the peak memory of a process and its descendants while they run."""

import threading
from types import TracebackType

import psutil

_PERIOD = 0.3  # seconds between samples; a sample takes milliseconds


class PeakMemory:
    """Context manager that records the largest resident memory, in bytes.

    Args:
        process: id of the process.
    """

    def __init__(self, process: int) -> None:
        self.parent = self.worker = self.together = 0
        self._process = psutil.Process(process)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            parent, workers = self._resident()
            self.parent = max(self.parent, parent)
            self.worker = max([self.worker, *workers])
            self.together = max(self.together, parent + sum(workers))
            if self._done.wait(_PERIOD):
                return

    def _resident(self) -> tuple[int, list[int]]:
        workers = []
        try:
            parent: int = self._process.memory_info().rss
            for child in self._process.children(recursive=True):
                try:
                    workers.append(child.memory_info().rss)
                except psutil.Error:  # it has ended meanwhile
                    continue
        except psutil.Error:
            return 0, []
        return parent, workers
