"""Shares the outcomes of checkpoint writes among all ranks, which then act alike.

The first failure of a checkpoint is a warning, the second in a row ends the run.
"""

import logging
from collections import deque
from pathlib import Path
from typing import NamedTuple

from lightning.pytorch.strategies import Strategy

from engine.checkpointing.verification import CorruptCheckpointError
from engine.distributed.errors import CollectiveError
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE, event

log = logging.getLogger("lockstep")


class _Outcome(NamedTuple):
    """Result of one write, broadcast by rank 0."""

    path: str
    error: str | None
    is_permanent: bool  # the next attempt would fail as well


class SaveOutcomes:
    """Outcomes of the writes of rank 0."""

    def __init__(self) -> None:
        self._unshared: deque[_Outcome] = deque()  # recorded on rank 0, not yet known to the other ranks
        self._failures: dict[str, list[str]] = {}  # consecutive failures by path, equal on all ranks

    def record_success(self, path: Path) -> None:
        """Record a save that is on the disk, until the next `sync`."""
        self._unshared.append(_Outcome(str(path), None, False))

    def record_failure(self, path: Path, error: Exception) -> None:
        """Record a failed save until the next `sync`.

        A refusal by the disk may be temporary. Any other error is permanent and ends the run at once.
        """
        log.debug("saving %s", path, exc_info=error)
        is_permanent = not isinstance(error, (OSError, CorruptCheckpointError))
        self._unshared.append(_Outcome(str(path), str(error) or type(error).__name__, is_permanent))

    def has_failed(self, path: Path) -> bool:
        """Return whether the last save as `path` failed, as of the last `sync`. Equal on all ranks."""
        return str(path) in self._failures

    def sync(self, strategy: Strategy, last: bool) -> None:
        """Share the outcomes since the last call. A collective.

        Args:
            strategy: of the run; its ranks communicate.
            last: no save follows, so a single failure ends the run.

        Raises:
            CollectiveError: a checkpoint could not be saved and the run must end. Raised on all ranks.
        """
        # The writer thread may append meanwhile, so take as many as there are now.
        outcomes = [self._unshared.popleft() for _ in range(len(self._unshared))]
        for path, error, is_permanent in strategy.broadcast(outcomes):
            if error is None:
                self._failures.pop(path, None)
                continue
            failures = self._failures.setdefault(path, [])
            failures.append(error)
            failed = event("checkpoint_failed", path=path, reason=error)
            if is_permanent or len(failures) > 1:
                log.error("%s could not be saved: %s", path, error, extra=HIDDEN_ON_CONSOLE | failed)
                self._raise_failure(path)
            log.warning(
                "%s could not be saved: %s. Training continues with the older checkpoint; a second failure in "
                "a row ends the run", path, error, extra=failed,
            )  # fmt: skip
        if last and self._failures:
            self._raise_failure(next(iter(self._failures)))

    def _raise_failure(self, path: str) -> None:
        errors = self._failures[path]
        count = f" {len(errors)} times in a row" if len(errors) > 1 else ""
        raise CollectiveError(
            f"{path} could not be saved{count}: {errors[-1]}. Fix the cause and resume with the same command and "
            "--ckpt_path last; the existing checkpoints are intact"
        )
