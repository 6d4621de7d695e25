"""No process of a run waits for another for ever: the callback that keeps engine.watch informed."""

import logging
import math
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from torch.distributed.distributed_c10d import _set_pg_timeout, default_pg_timeout

from callbacks.memory import memory_advice
from callbacks.requeue import requeue_job
from engine.checkpoint_file import CHECKPOINTS
from engine.events import UNSAID, event
from engine.faults import AgreedFailure, is_wrong_input
from engine.watch import GRACE, Watch

log = logging.getLogger("lockstep")

PREPARING = "preparing data"


class Watchdog(Callback):
    """Ends all processes of a run when one of them fails, dies or stands still, and says which one and why.

    A SLURM job that has lost a process, not by an error, then puts itself back into the queue.

    The stacks of all threads of all processes are then in the run's folder, in `faults/`. The processes' connections
    get the same time limits, unless the strategy has been given a `timeout`.

    Args:
        timeout: seconds without a step (or a batch of an evaluation), or without a sign of life from a process, after which the run ends; a link between machines may be cut for so long. 0: no limit.
        start_timeout: seconds that starting, the first step, and saving a checkpoint may take; preparing the data has no limit.
    """  # noqa: E501

    def __init__(self, timeout: float = 300, start_timeout: float = 600) -> None:
        for name, value in (("timeout", timeout), ("start_timeout", start_timeout)):
            if value < 0:
                raise ValueError(f"watchdog.{name} is a number of seconds, 0 for no limit; got {value}")
        self.timeout, self.start_timeout = timeout or math.inf, start_timeout or math.inf
        self._watch: Watch | None = None
        self._sets_group_timeout = False

    def attach(self, trainer: Trainer) -> None:
        """Makes the watch begin as soon as the processes are connected, before the data are prepared.

        Raises:
            ValueError: the processes are to be copies of this one (strategies ddp_spawn, ddp_fork, ddp_notebook).
        """
        strategy = trainer.strategy
        if isinstance(strategy.launcher, _MultiProcessingLauncher):
            raise ValueError(
                "the strategies ddp_spawn, ddp_fork and ddp_notebook copy this process with all that it has made so "
                "far, and a run of several processes starts each of them anew: use --trainer.strategy ddp"
            )
        if getattr(strategy, "_timeout", None) == default_pg_timeout:
            self._sets_group_timeout = True
            strategy._timeout = _group_timeout(self.start_timeout)
        connect = strategy.setup_environment

        def setup_environment() -> None:
            connect()
            self._begin(trainer)

        strategy.setup_environment = setup_environment  # type: ignore[method-assign]

    def _begin(self, trainer: Trainer) -> None:
        folder = Path(trainer.default_root_dir)
        before = _checkpoints(folder)
        watch = self._watch = Watch(self.timeout, folder, lambda: _come_back(folder, before))
        watch.phase = PREPARING  # as long as it takes, on the first process; the others wait, but show that they live
        children = getattr(trainer.strategy.launcher, "procs", ())
        for thread in threading.enumerate():
            if thread.name == "child-process-observer":
                # Lightning's own looks every 5 s and kills this process with SIGKILL, message and exit code with it.
                thread._child_processes = []  # type: ignore[attr-defined]
        watch.begin(trainer.global_rank, trainer.local_rank, trainer.world_size, children)

    @property
    def watch(self) -> Watch | None:
        """This process's; None before the processes are connected, and once it ends."""
        return self._watch

    # -- what the process does ---------------------------------------------------------------------------------------

    def _enter(self, phase: str, patience: float) -> None:
        watch = self._watch
        if watch is None:
            return
        if patience != watch.patience and self._sets_group_timeout and torch.distributed.is_initialized():
            # A little longer than the watch, which has more to say.
            _set_pg_timeout(_group_timeout(patience + 2 * GRACE))
        watch.enter(phase, patience)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._watch is None:
            self._begin(trainer)
        self._first_step = -1
        self._enter("start-up", self.start_timeout)

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("sanity check", self.start_timeout)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_step = trainer.global_step
        self._enter("start-up", self.start_timeout)  # what refuses a run in this hook is no error of a step

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step == self._first_step:
            self._enter("first step", self.start_timeout)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._in_training(trainer)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        self._watch.moves += 1  # type: ignore[union-attr]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._in_training(trainer)

    def _in_training(self, trainer: Trainer) -> None:
        self._watch.step = trainer.global_step  # type: ignore[union-attr]
        if trainer.global_step > self._first_step:
            self._enter("training", self.timeout)
        else:
            self._enter("first step", self.start_timeout)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("sanity check" if trainer.sanity_checking else "validation", self.start_timeout)

    def on_validation_batch_start(self, *args: Any, **kwargs: Any) -> None:
        self._watch.moves += 1  # type: ignore[union-attr]

    def on_validation_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.sanity_checking:
            self._enter("sanity check", self.start_timeout)
        else:
            self._enter("validation", self.timeout)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Metrics over everything may take long; the callbacks' hooks come before the module's.
        self._enter("sanity check" if trainer.sanity_checking else "end of validation", self.start_timeout)

    on_validation_end = on_validation_epoch_end

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("end of test", self.start_timeout)

    def on_predict_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("end of prediction", self.start_timeout)

    def on_test_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._enter("test", self.timeout)

    def on_predict_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._enter("prediction", self.timeout)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._enter("saving", self.start_timeout)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("end of training", self.start_timeout)

    @contextmanager
    def longer(self, phase: str) -> Iterator[None]:
        """Around what takes as long as a start, on all processes, in the middle of training."""
        before = (self._watch.phase, self._watch.patience) if self._watch is not None else None
        self._enter(phase, self.start_timeout)
        yield
        if before is not None:
            self._enter(*before)

    # -- the end -----------------------------------------------------------------------------------------------------

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        watch, self._watch = self._watch, None
        if watch is None:
            return
        if hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread():
            # Torch raises in the main thread for every loader process that dies; a second one must not cut this short.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if isinstance(exception, AgreedFailure) and watch.rank == 0:  # once for all
            log.error("%s", exception, extra=UNSAID | event("run_failed", error=str(exception)))
            exception.is_logged = True
        if isinstance(exception, (AgreedFailure, SystemExit)):
            watch.leave(patience=2 * GRACE)  # all processes end alike
            return
        started = watch.phase not in (PREPARING, "start-up", "sanity check")
        first = watch.settle(exception)
        if not started and is_wrong_input(exception):
            exit_code, shown = 2, first.rank != watch.rank
            if not shown:
                log.error("%s", exception, extra=UNSAID | event("run_failed", error=first.text))
                exception.is_logged = True  # type: ignore[attr-defined]
        else:
            exit_code, shown = 1, True
            if first.rank == watch.rank and not isinstance(exception, KeyboardInterrupt):
                advice = memory_advice(trainer, exception)  # says more than a traceback, which is in faults/
                said = f"{first.text}{watch.memory_note()}" + (f"\n{advice}" if advice else "")
                failed = event("out_of_memory" if advice else "run_failed", error=first.text)
                log.error("%s", said, exc_info=None if advice else exception, extra=failed)
        if shown:
            exception.exit_code = exit_code  # type: ignore[attr-defined]

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.leave()


def longer_than_a_step(trainer: Trainer, phase: str) -> AbstractContextManager[None]:
    """`Watchdog.longer` of the run's watchdog; nothing in a run without one."""
    watchdogs = [callback for callback in trainer.callbacks if isinstance(callback, Watchdog)]
    return watchdogs[0].longer(phase) if watchdogs else nullcontext()


def _group_timeout(seconds: float) -> timedelta:
    """As PyTorch takes it: the store's milliseconds must fit into 31 bits, so "no limit" is 24 days."""
    return timedelta(seconds=min(seconds, 24 * 86400))


def _checkpoints(folder: Path) -> dict[Path, int]:
    """A run's checkpoints, and when they were written."""
    written = {}
    for path in folder.glob(f"{CHECKPOINTS}/*.ckpt"):
        with suppress(FileNotFoundError):  # another process may be putting a newer one in its place
            written[path] = path.stat().st_mtime_ns
    return written


def _come_back(folder: Path, before: dict[Path, int]) -> None:
    """A SLURM job that has lost a process goes back into the queue if it has got ahead since it started.

    SLURM itself requeues for a node that it has noticed to be down, and this may be sooner. Without a checkpoint since
    the start the next one would come to the same point, and, should the loss lie there, for ever.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return
    if _checkpoints(folder) == before:
        log.warning("the SLURM job is not requeued: it has saved nothing since it started")
    else:
        requeue_job(os.environ)
