"""What disks do, addressed by step and process; see faults.py."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from engine import checkpoints, durable_file
from tests.distributed.faults import At


class KillInWrite(At):
    """SIGKILL after `octets` bytes of the next checkpoint that the process writes after `step`."""

    def __init__(self, octets: int, step: int, process: int = 0) -> None:
        super().__init__(step, process)
        self.octets = octets

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        write, left = durable_file._Watched.write, self.octets

        def dies(file: Any, data: Any) -> int:
            nonlocal left
            view = memoryview(data)
            if left < view.nbytes:
                write(file, view.cast("B")[:left])
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            left -= view.nbytes
            return write(file, data)

        durable_file._Watched.write = dies


class DiskFull(At):
    """No file of the process may grow beyond `octets` bytes, until `until` steps are finished."""

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
    """The folder of checkpoints may not be written any more; root, who may write everywhere, saves as somebody."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        (Path(trainer.default_root_dir) / "checkpoints").chmod(0o555)
        if os.geteuid() == 0:
            write = checkpoints.write_beside

            def as_somebody(*arguments: Any) -> Path:
                os.seteuid(65534)
                try:
                    return write(*arguments)
                finally:
                    os.seteuid(0)

            checkpoints.write_beside = as_somebody


class StopAt(At):
    """Somebody wants the run to end with the next step."""

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
