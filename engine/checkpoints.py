"""Checkpoints that are whole when they have a name, verified before they are loaded, and agreed on when a write fails.

Lightning writes to $TMPDIR, moves the file without flushing it, and raises on the process that writes alone. Here the
first process writes (`durable_file`), keeps what went wrong, and after every save all processes hear of it and decide
alike: the first failure of a checkpoint is a warning, a second one in a row ends the run.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.strategies import Strategy

from engine.checkpoint_file import CHECKPOINTS, DamagedCheckpoint, newest_verified, verify
from engine.checkpoint_match import require_lightning
from engine.durable_file import remove, write_beside
from engine.events import UNSAID, event
from engine.faults import AgreedFailure
from engine.loadable import require_loadable
from engine.retention import insert
from engine.snapshot import Snapshot

__all__ = ["CHECKPOINTS", "DamagedCheckpoint", "DurableCheckpointIO", "newest_verified", "verify"]

log = logging.getLogger("lockstep")


class DurableCheckpointIO(CheckpointIO):
    """Writes checkpoints beside, flushed, verified and renamed; loads what verifies, with `weights_only`.

    Args:
        asynchronous: training stalls only for the copy to memory (which a checkpoint needs once more then), and a thread writes it; the next save waits for it.
        trainable_only: leave out the weights that are frozen and as they were built; a checkpoint keeps their fingerprints, which are compared when it is loaded. `false` stores everything.
    """  # noqa: E501

    def __init__(self, asynchronous: bool = False, trainable_only: bool = True) -> None:
        self.asynchronous, self.trainable_only = asynchronous, trainable_only
        self._rows: dict[Path, list[Path]] = {}
        self._replacing: set[Path] = set()
        self._snapshot = Snapshot()
        self._writer: threading.Thread | None = None
        self._outcomes: deque[tuple[str, str | None, bool]] = deque()  # path, what went wrong, whether it always will
        self._failures: dict[str, list[str]] = {}  # in a row, as all processes know of them
        self.trajectory: set[float] = set()
        """`saved_at` of what this start goes on from and of what it has saved, as the first process knows."""
        self._latest = 0.0

    # -- what callbacks ask for --------------------------------------------------------------------------------------

    def keep(self, row: Sequence[Path]) -> None:
        """From now on a checkpoint saved as one of `row` moves what is there on to the next name of it."""
        for path in row:
            self._rows[path] = list(row)

    def replace_next(self, path: Path) -> None:
        """The next checkpoint saved as `path` takes the place of what is there; nothing moves on."""
        self._replacing.add(path)

    def agree(self, strategy: Strategy, last: bool = False) -> None:
        """Entered by all processes after a save: what the first process has finished writing becomes known to all.

        Args:
            last: nothing is saved after this; waits for the disk, and no failure is forgiven.

        Raises:
            AgreedFailure: on all processes, when the run should end.
        """
        if last:
            self.finish_writing()
        known = [self._outcomes.popleft() for _ in range(len(self._outcomes))]
        for path, reason, always in strategy.broadcast(known):
            if reason is None:
                self._failures.pop(path, None)
                continue
            failures = self._failures.setdefault(path, [])
            failures.append(reason)
            failed = event("checkpoint_failed", path=path, reason=reason)
            if always or len(failures) > 1:
                log.error("%s could not be saved: %s", path, reason, extra=UNSAID | failed)
                self._give_up(path)
            log.warning(
                "WARNING: %s could not be saved: %s. Training goes on with the older checkpoint; if the next save "
                "fails as well, the run ends", path, reason, extra=failed,
            )  # fmt: skip
        if last and self._failures:
            self._give_up(next(iter(self._failures)))

    def goes_on_from(self, saved_at: float) -> None:
        """The run goes on from the checkpoint with this `saved_at`."""
        self.trajectory.add(saved_at)
        self.saves_after(saved_at)

    def saves_after(self, saved_at: float) -> None:
        """What is saved from now on is newer than this, whatever the machine's clock says: it may be behind."""
        self._latest = max(self._latest, saved_at)

    def stamp(self) -> float:
        """A checkpoint's `saved_at`: now, in seconds since 1970, and later than that of all before it."""
        self._latest = max(time.time(), self._latest + 0.001)
        self.trajectory.add(self._latest)
        return self._latest

    def failed(self, path: Path) -> bool:
        """Whether the last save as `path` failed, as far as all processes know."""
        return str(path) in self._failures

    def _give_up(self, path: str) -> None:
        reasons = self._failures[path]
        again = f" {len(reasons)} times in a row" if len(reasons) > 1 else ""
        raise AgreedFailure(
            f"{path} could not be saved{again}: {reasons[-1]}. Mend this and go on with the same command and "
            "--ckpt_path last; the checkpoints that are there are whole"
        )

    def finish(self) -> None:
        """Waits until what was saved is on the disk. On the process that writes; the others have nothing to wait for.

        Raises:
            OSError: one of the saves since the last agreement has failed.
        """
        self.finish_writing()
        for path, reason, _ in self._outcomes:
            if reason is not None:
                raise OSError(f"{path} could not be saved: {reason}")

    def finish_writing(self) -> None:
        """Waits for the thread that writes, whatever becomes of it."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def note(self, path: Path, error: Exception) -> None:
        """Keeps what went wrong until the processes agree; what the disk has refused may succeed another time."""
        log.debug("saving %s", path, exc_info=error)
        reason = str(error) or type(error).__name__
        self._outcomes.append((str(path), reason, not isinstance(error, (OSError, DamagedCheckpoint))))

    # -- what Lightning asks for -------------------------------------------------------------------------------------

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Never raises because of the disk, as the other processes would wait for this one: see `agree`."""
        if storage_options is not None:
            raise TypeError("storage_options: a checkpoint is written to a folder of this machine or of its network")
        self.finish_writing()
        path = Path(path)
        if "saved_at" not in checkpoint:
            checkpoint["saved_at"] = self.stamp()

        def write(content: dict[str, Any]) -> Path:
            return write_beside(path, lambda file: torch.save(content, file), verify)

        try:
            require_loadable(checkpoint)
            if self.asynchronous:
                checkpoint = self._snapshot.take(checkpoint)
        except Exception as error:
            self.note(path, error)
        else:
            self.put(path, lambda: write(checkpoint))

    def put(self, path: Path, write: Callable[[], Path], begun: float | None = None) -> None:
        """Lets `write` make a whole checkpoint under a hidden name, and gives it the name `path`.

        Args:
            begun: by time.monotonic(), when the writing has begun before this.
        """

        def work() -> None:
            start = time.monotonic() if begun is None else begun
            try:
                new = write()
                try:
                    size = _bytes(new)
                    row = self._rows.get(path, [path])
                    insert(new, row, row.index(path), shift=path not in self._replacing)
                finally:
                    remove(new)
            except Exception as error:
                self.note(path, error)
            else:
                self._replacing.discard(path)
                self._outcomes.append((str(path), None, False))
                seconds = time.monotonic() - start
                saved = event("checkpoint_saved", path=str(path), seconds=round(seconds, 3), bytes=size)
                log.info("saved %s: %.1f MB in %.2f s", path, size / 1e6, seconds, extra=UNSAID | saved)

        self.finish_writing()
        if self.asynchronous:
            self._writer = threading.Thread(target=work, name="checkpoint-writer")
            self._writer.start()
        else:
            work()

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """
        Raises:
            DamagedCheckpoint: names the file, what was found and what to do.
            ValueError: it is whole, but no checkpoint of Lightning's.
        """
        self.finish_writing()
        try:
            verify(Path(path))
        except DamagedCheckpoint as error:
            raise DamagedCheckpoint(
                f"{error}. --ckpt_path last takes the newest one of a run that is whole, --ckpt_path FILE another"
            ) from error
        checkpoint = torch.load(path, map_location="cpu" if map_location is None else map_location, weights_only=True)
        require_lightning(checkpoint, Path(path))
        return checkpoint

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """After what is being written is whole; a failure is a warning."""
        self.finish_writing()
        remove(Path(path))

    def teardown(self) -> None:
        """The run ends, perhaps because something went wrong: what is being written is brought to its end."""
        self.finish_writing()


def _bytes(checkpoint: Path) -> int:
    files = checkpoint.rglob("*") if checkpoint.is_dir() else (checkpoint,)
    return sum(file.stat().st_size for file in files)
