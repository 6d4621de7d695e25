"""Saves and loads checkpoints as a Lightning plugin: verified writes, and a common decision when a write fails.

Lightning writes to $TMPDIR, moves the file without flushing it, and raises on the writing rank alone. Here rank 0
writes, flushes, verifies and renames (`engine.io.atomic_file`) and records failures. After every save all ranks learn
the outcome and act alike (`save_outcomes.py`).
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.strategies import Strategy

from engine.checkpointing.checkpoint_schema import require_checkpoint
from engine.checkpointing.compatibility import check_weights_only_loadable
from engine.checkpointing.cpu_snapshot import Snapshot
from engine.checkpointing.rotation import keep_copy, rotate_in
from engine.checkpointing.save_outcomes import SaveOutcomes
from engine.checkpointing.verification import CorruptCheckpointError, load_lazily, verify
from engine.io.atomic_file import remove, write_temp
from engine.optim.eight_bit_state import as_bitsandbytes
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE, event

log = logging.getLogger("lockstep")


class VerifiedCheckpointIO(CheckpointIO):
    """Writes checkpoints atomically and verifies them before loading; loads with `weights_only`.

    Args:
        asynchronous: training stalls only for the copy to memory (which a checkpoint needs once more then), and a
            thread writes it; the next save waits for it.
        trainable_only: omit frozen weights that are unchanged since construction; a checkpoint keeps their hashes,
            which are compared when it is loaded. `false` stores everything.
    """

    def __init__(self, asynchronous: bool = False, trainable_only: bool = True) -> None:
        self.asynchronous, self.trainable_only = asynchronous, trainable_only
        self._rotations: dict[Path, list[Path]] = {}  # names of the rotation of each name, newest first
        self._replacing: set[Path] = set()  # names whose next save replaces the file
        self._copies: dict[Path, Path] = {}  # second name of the next save under a name
        self._snapshot = Snapshot()
        self._writer: threading.Thread | None = None
        self._outcomes = SaveOutcomes()
        self.trajectory: set[float] = set()
        """`saved_at` of the checkpoint that this start resumed from, and of all that it saved. Complete on rank 0."""
        self._latest = 0.0

    # -- for callbacks -----------------------------------------------------------------------------------------------

    def set_rotation(self, files: Sequence[Path]) -> None:
        """Rotate `files`, newest first: a save under one of these names moves the older files to the next name."""
        for path in files:
            self._rotations[path] = list(files)

    def replace_next(self, path: Path) -> None:
        """Make the next save as `path` replace the file instead of rotating it."""
        self.finish_writing()  # a running save of this name must not take the mark
        self._replacing.add(path)

    def keep_next(self, path: Path, copy: Path | None) -> None:
        """Give the checkpoint of the next save as `path` a second name that no rotation moves; None for no name."""
        if copy is None:
            self._copies.pop(path, None)
        else:
            self._copies[path] = copy

    def sync_outcomes(self, strategy: Strategy, last: bool = False) -> None:
        """Share the outcomes of finished writes among all ranks. Call it on all ranks after each save.

        Args:
            strategy: of the run; its ranks communicate.
            last: no save follows. Waits for the disk, and a single failure ends the run.

        Raises:
            CollectiveError: a checkpoint could not be saved and the run must end. Raised on all ranks.
        """
        if last:
            self.finish_writing()
        self._outcomes.sync(strategy, last)

    def record_resumed(self, saved_at: float) -> None:
        """Record the `saved_at` of the checkpoint that the run resumes from."""
        self.trajectory.add(saved_at)
        self.require_later_than(saved_at)

    def require_later_than(self, saved_at: float) -> None:
        """Make all later saves newer than `saved_at`, even if this machine's clock is behind."""
        self._latest = max(self._latest, saved_at)

    def next_timestamp(self) -> float:
        """Return `saved_at` for a new checkpoint: now, in seconds since 1970, and later than every known checkpoint."""
        # Strictly increasing, also within a tick of the clock or after it was set back: the order of checkpoints
        # depends on it.
        self._latest = max(time.time(), self._latest + 0.001)
        self.trajectory.add(self._latest)
        return self._latest

    def has_failed(self, path: Path) -> bool:
        """Return whether the last save as `path` failed, as of the last `sync_outcomes`. Equal on all ranks."""
        return self._outcomes.has_failed(path)

    def finish_writing(self) -> None:
        """Wait for the writer thread, whether it succeeds or not."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def record_failure(self, path: Path, error: Exception) -> None:
        """Record a failed save until the next `sync_outcomes`."""
        self._outcomes.record_failure(path, error)

    # -- for Lightning -----------------------------------------------------------------------------------------------

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint. Records disk errors instead of raising them, since other ranks wait: see `sync_outcomes`.

        Raises:
            TypeError: `storage_options` is given.
        """
        if storage_options is not None:
            raise TypeError("storage_options is not supported: checkpoints are written to a local or network folder")
        self.finish_writing()
        path = Path(path)
        if "saved_at" not in checkpoint:
            checkpoint["saved_at"] = self.next_timestamp()

        def write(content: dict[str, Any]) -> Path:
            return write_temp(path, lambda file: torch.save(content, file), verify)

        try:
            # A checkpoint that cannot be loaded again must fail when it is saved, not when it is needed.
            check_weights_only_loadable(checkpoint)
            if self.asynchronous:
                checkpoint = self._snapshot.copy_to_cpu(checkpoint)
        except Exception as error:
            self.record_failure(path, error)
        else:
            self.commit(path, lambda: write(checkpoint))

    def commit(self, path: Path, write: Callable[[], Path], started: float | None = None) -> None:
        """Write a checkpoint under a temporary name, then rotate it in as `path`.

        Args:
            path: final name of the checkpoint.
            write: writes a complete checkpoint and returns its temporary path.
            started: time.monotonic() when writing began, if it began before this call.
        """
        copy_path = self._copies.pop(path, None)

        def work() -> None:
            start = time.monotonic() if started is None else started
            try:
                new = write()
                try:
                    size = _size(new)
                    files = self._rotations.get(path, [path])
                    rotate_in(new, files, files.index(path), shift=path not in self._replacing)
                    if copy_path is not None:
                        keep_copy(path, copy_path)
                finally:
                    # Does nothing after a success: the file has got its final name.
                    remove(new)
            except Exception as error:
                self.record_failure(path, error)
            else:
                # Removed only after a success, so that a repeated save replaces the file, too.
                self._replacing.discard(path)
                self._outcomes.record_success(path)
                seconds = time.monotonic() - start
                saved = event("checkpoint_saved", path=str(path), seconds=round(seconds, 3), bytes=size)
                log.info("saved %s: %.1f MB in %.2f s", path, size / 1e6, seconds, extra=HIDDEN_ON_CONSOLE | saved)
                if copy_path is not None:
                    kept_event = event("checkpoint_kept", path=str(copy_path))
                    log.info("kept %s: no rotation deletes it", copy_path, extra=HIDDEN_ON_CONSOLE | kept_event)

        self.finish_writing()  # one write at a time: rotation renames files, and the snapshot's buffers are reused
        if self.asynchronous:
            self._writer = threading.Thread(target=work, name="checkpoint-writer")
            self._writer.start()
        else:
            work()

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Verify and load a checkpoint, always with `weights_only=True`; the argument of this name has no effect.

        Raises:
            CorruptCheckpointError: the checkpoint is truncated or corrupt, or a key holds the wrong kind of value.
            ValueError: the file is intact, but not a Lightning checkpoint.
        """
        self.finish_writing()
        try:
            verify(Path(path))
            checkpoint = _read(Path(path), "cpu" if map_location is None else map_location)
            require_checkpoint(checkpoint, Path(path))
        except CorruptCheckpointError as error:
            raise CorruptCheckpointError(
                f"{error}. --ckpt_path last uses the newest intact checkpoint of a run, --ckpt_path FILE another one"
            ) from error
        return checkpoint

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint once pending writes are complete. A failure is only a warning."""
        self.finish_writing()
        remove(Path(path))

    def teardown(self) -> None:
        """Complete pending writes, also when the run has failed."""
        self.finish_writing()


def _read(path: Path, device: Any) -> dict[str, Any]:
    if not path.is_dir():
        content: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        return content
    from engine.checkpointing.sharded.sharded_state import GROUPS, read_full_checkpoint

    content = load_lazily(path)
    shards = read_full_checkpoint(path, content.get(GROUPS))
    if "optimizer_states" in shards:
        # An unsharded 8-bit optimizer is bitsandbytes' own, with its form of the state.
        shards["optimizer_states"] = [as_bitsandbytes(state) for state in shards["optimizer_states"]]
    return {**content, **shards}


def _size(checkpoint: Path) -> int:
    files = checkpoint.rglob("*") if checkpoint.is_dir() else (checkpoint,)
    return sum(file.stat().st_size for file in files)
