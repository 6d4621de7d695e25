"""Injects a fault at a step on a rank: `--trainer.callbacks+=tests.support.faults.step_faults.SignalAt`."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from engine.health.signals import stop_signals
from engine.optim.global_loss_mean import LossSum

STOP_SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1")


def wait_for_stop_signal(seconds: float = 10) -> None:
    """Wait until the thread that reads signals has taken note, so that a test knows the step that sees the signal."""
    deadline = time.monotonic() + seconds
    while not stop_signals.received and time.monotonic() < deadline:
        time.sleep(0.001)


class At(Callback):
    """Something that happens on one process (-1: on all) after `step` optimizer steps are finished, once."""

    def __init__(self, step: int, process: int = 0) -> None:
        self.step, self.process, self.done = step, process, False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.step and not self.done and self.process in (trainer.global_rank, -1):
            self.done = True
            self.happen(trainer, pl_module)

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise NotImplementedError


class SignalAt(At):
    """The process gets a signal: SIGKILL, SIGSTOP, SIGTERM, SIGINT, SIGUSR1."""

    def __init__(self, name: str, step: int, process: int = 0) -> None:
        super().__init__(step, process)
        self.name = name

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        os.kill(os.getpid(), signal.Signals[self.name])
        if self.name in STOP_SIGNALS:
            wait_for_stop_signal()


class SetClockAt(At):
    """Sets the wall clock of the process forward by seconds (back, if negative); the monotonic clock goes on."""

    def __init__(self, step: int, seconds: float, process: int = 0) -> None:
        super().__init__(step, process)
        self.seconds = seconds

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        true_time = time.time
        time.time = lambda: true_time() + self.seconds


class KillsAt(Callback):
    """A process is killed after each of so many finished steps, once in the life of a run: not again after a restart.

    Args:
        steps: numbers of finished steps.
        processes: the process that is killed at each of them.
    """

    def __init__(self, steps: list[int], processes: list[int]) -> None:
        self.victims = dict(zip(steps, processes, strict=True))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.victims.get(trainer.global_step) != trainer.global_rank:
            return
        with suppress(FileExistsError):
            (Path(trainer.default_root_dir) / f"killed-after-{trainer.global_step}").open("x").close()
            os.kill(os.getpid(), signal.SIGKILL)


class RaiseAt(At):
    """The process raises an error."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise RuntimeError(f"injected on process {self.process}")


class RefuseAtStart(Callback):
    """The process refuses to start, as if its input were wrong."""

    def __init__(self, process: int) -> None:
        self.process = process

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_rank == self.process:
            raise ValueError(f"refused on process {self.process}")


class HangAt(At):
    """The main thread hangs."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        threading.Event().wait()


class HoldLockAt(At):
    """The process hangs in code that holds the GIL, so none of its threads runs either."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ctypes.PyDLL(None).pause()


class SkipAt(At):
    """The process does not take part in a step, as with `continue` or `return` in a loop of one's own."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        pl_module.training_step = lambda *batch: None


class SlowLoss(Callback):
    """Delays the loss on one rank by some seconds."""

    def __init__(self, process: int, seconds: float) -> None:
        self.process, self.seconds = process, seconds

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        training_loss = pl_module.training_loss

        def slow(batch: Any) -> LossSum:
            until = time.perf_counter() + self.seconds
            while time.perf_counter() < until:
                pass
            return training_loss(batch)

        if trainer.global_rank == self.process:
            pl_module.training_loss = slow


class WorkerEndsAt(At):
    """A loader's worker process gets a signal."""

    def __init__(self, name: str, step: int, process: int = 0) -> None:
        super().__init__(step, process)
        self.name = name

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.Signals[self.name])


class CommandAt(At):
    """The process runs a command, once in the life of a run: not again after a restart.

    Variables are put in: ``["scancel", "--signal=USR1", "$SLURM_JOB_ID"]``, ``["kill", "-TERM", "$PID"]``. With `hold`
    it then waits for the stop, as a signal that another process passes on takes time.
    """

    def __init__(self, command: list[str], step: int, process: int = 0, hold: bool = False) -> None:
        super().__init__(step, process)
        self.command, self.hold = command, hold

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        try:
            (Path(trainer.default_root_dir) / "command-was-run").open("x").close()
        except FileExistsError:
            return
        os.environ["PID"] = str(os.getpid())
        command = [os.path.expandvars(word) for word in self.command]
        code = subprocess.run(command, timeout=60).returncode
        # A launcher signals everything that the process started, so the command may die by the signal it asked for.
        if code not in (0, -signal.SIGTERM, -signal.SIGUSR1):
            raise subprocess.CalledProcessError(code, command)
        deadline = time.monotonic() + 120
        while self.hold and not stop_signals.received:
            if time.monotonic() > deadline:
                raise TimeoutError("no signal came")
            time.sleep(0.05)


class FailsTwice(At):
    """The process fails, and once more before a hook is called for it: two workers of a loader have died."""

    def happen(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.callbacks = _Interrupted(trainer.callbacks)
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")


class _Interrupted(list[Callback]):
    """Callbacks of which the first call of a hook fails, as torch's handler raises anywhere in the main thread."""

    is_interrupted = False

    def __iter__(self) -> Iterator[Callback]:
        if not self.is_interrupted:
            self.is_interrupted = True
            raise RuntimeError("DataLoader worker (pid 2) is killed by signal: Killed.")
        return super().__iter__()


class Without(Callback):
    """The run has no callback of that class: what Lightning does by itself."""

    def __init__(self, callback: str) -> None:
        self.callback = callback

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        trainer.callbacks = [callback for callback in trainer.callbacks if type(callback).__name__ != self.callback]


def fault(kind: str, module: str = __name__, **settings: Any) -> list[str]:
    """The options that add a fault to a run: ``fault("SignalAt", name="SIGKILL", step=3, process=1)``."""
    options = [f"--trainer.callbacks+={module}.{kind}"]
    return options + [f"--trainer.callbacks.{key}={value}" for key, value in settings.items()]
