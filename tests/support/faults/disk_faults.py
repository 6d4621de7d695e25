"""Injects faults of disks and files at a step on a rank; see step_faults.py."""

import ctypes
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from engine.checkpointing import checkpoint_io
from engine.io import atomic_file
from tests.support.faults.step_faults import At, fault


class KillInWrite(At):
    """SIGKILL after `octets` bytes of the next checkpoint that the process writes after `step`."""

    def __init__(self, octets: int, step: int, process: int = 0) -> None:
        super().__init__(step, process)
        self.octets = octets

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        write, left = atomic_file._ErrorRecorder.write, self.octets

        def dies(file: Any, data: Any) -> int:
            nonlocal left
            view = memoryview(data)
            if left < view.nbytes:
                write(file, view.cast("B")[:left])
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            left -= view.nbytes
            return write(file, data)

        atomic_file._ErrorRecorder.write = dies


class DiskFull(At):
    """Limits the size of each file of the process to `octets` bytes, until `until` steps are finished."""

    def __init__(self, octets: int, step: int, until: int = -1, process: int = 0) -> None:
        super().__init__(step, process)
        self.octets, self.until = octets, until

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self.done and trainer.global_step == self.until:
            self._limit(-1)

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._limit(self.octets)

    def _limit(self, octets: int) -> None:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most if octets < 0 else octets, most))


class ReadOnlyAt(At):
    """Makes the folder of checkpoints read-only. Root may write everywhere, so its saving thread acts as another user.

    Only that thread does (Linux's setfsuid): other threads, the heartbeat's for instance, still write as root.
    """

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        (Path(trainer.default_root_dir) / "checkpoints").chmod(0o555)
        if os.geteuid() == 0:
            write, libc = checkpoint_io.write_temp, ctypes.CDLL(None)

            def as_other_user(*arguments: Any) -> Path:
                libc.setfsuid(65534)
                try:
                    return write(*arguments)
                finally:
                    libc.setfsuid(0)

            checkpoint_io.write_temp = as_other_user


class StopAt(At):
    """Requests a stop after the next step."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = True


class FillDisk(At):
    """The file system that `runs/` lies on is full, really, until `until` steps are finished."""

    def __init__(self, step: int, until: int = -1, process: int = 0) -> None:
        super().__init__(step, process)
        self.until = until

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self.done and trainer.global_step == self.until:
            Path("runs/filler").unlink(missing_ok=True)

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        with Path("runs/filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(b"x" * 4096)


class FolderGoneAt(At):
    """The run's folder is deleted, or renamed to `to`."""

    def __init__(self, step: int, to: str = "", process: int = 0) -> None:
        super().__init__(step, process)
        self.to = to

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = Path(trainer.default_root_dir)
        if self.to:
            folder.rename(folder.with_name(self.to))
        else:
            shutil.rmtree(folder)


def disk_fault(kind: str, **settings: Any) -> list[str]:
    """Return the options that inject a fault of this file, see `fault`."""
    return fault(kind, __name__, **settings)


def folder_gone(**settings: Any) -> list[str]:
    """Return the options that delete or rename the run's folder."""
    return disk_fault("FolderGoneAt", **settings)
