"""A record that is only ever added to, and that a full disk neither ends nor tears."""

import logging
import threading
from collections import deque
from pathlib import Path

from engine.events import event

log = logging.getLogger("lockstep")

KEPT = 20_000
"""Pieces that wait in memory, at most, until the disk takes them."""


class AppendedFile:
    """Writes piece by piece, each at once. What the disk refuses waits in memory and is written when it has room again.

    A piece of which the disk took a part is finished then, so nothing is torn. Says once that it cannot write, and
    once that it can again.

    Args:
        path: of the file; what it has already stays.
        make_folder: make the folder, too, if it is not there.

    Raises:
        OSError: when the file cannot be opened; nothing afterwards.
    """

    def __init__(self, path: Path, make_folder: bool = True) -> None:
        self.path = path
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._waiting: deque[bytes] = deque()
        # Whoever finds it taken (another thread, a handler of a signal, the warning below) leaves a piece to the owner.
        self._writing = threading.Lock()
        self._refused, self._lost = False, 0

    def write(self, piece: str | bytes) -> None:
        if len(self._waiting) < KEPT:
            self._waiting.append(piece.encode() if isinstance(piece, str) else piece)
        else:
            self._lost += 1
        self.flush()

    def flush(self) -> None:
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._write_waiting()
            if self._refused:
                self._refused = False
                lost = f"; {self._lost} entries are lost" if self._lost else ""
                log.warning("%s can be written again%s", self.path, lost)
        except OSError as error:
            if not self._refused:
                self._refused = True
                log.warning(
                    "WARNING: %s cannot be written: %s. What belongs there waits in memory", self.path, error,
                    extra=event("disk_full", path=str(self.path), reason=str(error)),
                )  # fmt: skip
        finally:
            self._writing.release()

    def _write_waiting(self) -> None:
        while self._waiting:
            piece = self._waiting[0]
            taken = self._file.write(piece)
            if taken == len(piece):
                self._waiting.popleft()
            else:
                self._waiting[0] = piece[taken:]

    def close(self) -> None:
        if self._file.closed:
            return
        self.flush()
        if self._waiting:
            log.warning("WARNING: the last %d entries of %s are lost", len(self._waiting) + self._lost, self.path)
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed
