"""Reports the phases of a run to engine.health.process_monitor, which ends stalled runs."""

import logging
import math
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.health.memory_monitor import memory_advice
from callbacks.health.slurm_requeue import checkpoint_times, requeue_if_saved
from engine.data.dataloader import BadBatchError
from engine.distributed.errors import CollectiveError, is_full_disk, is_user_error
from engine.health.exit_codes import ExitCode
from engine.health.process_monitor import GRACE, ProcessMonitor
from engine.lightning_internals.processes import (
    after_setup_environment,
    copies_this_process,
    disable_child_observer,
    set_group_timeout,
    set_strategy_timeout,
)
from engine.number_check import check_number
from engine.run_trainer import as_run_trainer
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE, event

log = logging.getLogger("lockstep")

PREPARING = "preparing data"


class Watchdog(Callback):
    """Ends all ranks of a run when a rank fails, dies or stalls, and logs which rank and why.

    All ranks dump the stacks of their threads into `faults/` in the run's folder. A SLURM job that has lost a rank,
    other than by an error, is requeued. Collectives get the same time limits, unless the strategy has a `timeout`.

    Args:
        timeout: seconds without a step (or a batch of an evaluation), or without a heartbeat of a rank, after which the
            run ends; a link between machines may be cut for less. 0: no limit.
        start_timeout: seconds that starting, the first step, and saving a checkpoint may take; preparing the data has
            no limit.
    """

    def __init__(self, timeout: float = 300, start_timeout: float = 600) -> None:
        for name, value in (("timeout", timeout), ("start_timeout", start_timeout)):
            check_number(f"watchdog.{name}", value, at_least=0)
        self.timeout, self.start_timeout = timeout or math.inf, start_timeout or math.inf
        self._monitor: ProcessMonitor | None = None
        self._sets_group_timeout = False

    def attach(self, trainer: Trainer) -> None:
        """Start the monitor as soon as the ranks are connected, before the data are prepared.

        Raises:
            ValueError: the strategy copies this process (ddp_spawn, ddp_fork, ddp_notebook).
        """
        strategy = trainer.strategy
        if copies_this_process(strategy):
            raise ValueError(
                "the strategies ddp_spawn, ddp_fork and ddp_notebook copy this process with its state, but each rank "
                "must start as a new process: use --trainer.strategy ddp"
            )
        self._sets_group_timeout |= set_strategy_timeout(strategy, _group_timeout(self.start_timeout))
        after_setup_environment(strategy, lambda: self._begin(trainer))

    def _begin(self, trainer: Trainer) -> None:
        folder = Path(trainer.default_root_dir)
        before = checkpoint_times(folder)
        monitor = self._monitor = ProcessMonitor(self.timeout, folder, lambda: requeue_if_saved(folder, before))
        monitor.phase = PREPARING  # no limit: rank 0 prepares, the other ranks wait and send heartbeats
        children = getattr(trainer.strategy.launcher, "procs", ())
        disable_child_observer()
        monitor.start(trainer.global_rank, trainer.local_rank, trainer.world_size, children)

    @property
    def monitor(self) -> ProcessMonitor | None:
        """Monitor of this rank; None before the ranks are connected and after the run has ended."""
        return self._monitor

    @property
    def _started_monitor(self) -> ProcessMonitor:
        assert self._monitor is not None, "it starts in setup at the latest"
        return self._monitor

    # -- phases ------------------------------------------------------------------------------------------------------

    def _enter(self, phase: str, max_idle: float) -> None:
        if (monitor := self._monitor) is None:
            return
        if max_idle != monitor.max_idle and self._sets_group_timeout and torch.distributed.is_initialized():
            # A little longer than the monitor, whose message is more specific than a collective's.
            set_group_timeout(_group_timeout(max_idle + 2 * GRACE))
        monitor.enter(phase, max_idle)

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._monitor is None:
            self._begin(trainer)
        self._first_step = -1
        self._enter("start-up", self.start_timeout)

    @override
    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("sanity check", self.start_timeout)

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_step = trainer.global_step
        self._enter("start-up", self.start_timeout)  # an error in this hook is not an error of a step

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step == self._first_step:
            self._enter("first step", self.start_timeout)

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        self._started_monitor.progress += 1

    @override
    def on_train_batch_start(self, trainer: Trainer, *args: object, **kwargs: object) -> None:
        step = self._started_monitor.step = trainer.global_step
        if step > self._first_step:
            self._enter("training", self.timeout)
        else:
            self._enter("first step", self.start_timeout)

    on_train_batch_end = on_train_batch_start

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("sanity check" if trainer.sanity_checking else "validation", self.start_timeout)

    @override
    def on_validation_batch_start(self, *args: object, **kwargs: object) -> None:
        self._started_monitor.progress += 1

    @override
    def on_validation_batch_end(self, trainer: Trainer, *args: object, **kwargs: object) -> None:
        if trainer.sanity_checking:
            self._enter("sanity check", self.start_timeout)
        else:
            self._enter("validation", self.timeout)

    @override
    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Metrics over the whole data set may take long. The module's hook, which follows, computes them.
        self._enter("sanity check" if trainer.sanity_checking else "end of validation", self.start_timeout)

    on_validation_end = on_validation_epoch_end

    @override
    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("end of test", self.start_timeout)

    @override
    def on_predict_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("end of prediction", self.start_timeout)

    @override
    def on_test_batch_end(self, *args: object, **kwargs: object) -> None:
        self._enter("test", self.timeout)

    @override
    def on_predict_batch_end(self, *args: object, **kwargs: object) -> None:
        self._enter("prediction", self.timeout)

    @override
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        self._enter("saving", self.start_timeout)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter("end of training", self.start_timeout)

    @contextmanager
    def extended_timeout(self, phase: str) -> Iterator[None]:
        """Allow `start_timeout` for an operation. Use it on all ranks.

        Args:
            phase: shown in messages; begin it with `start-up` before training, so that a refusal in it counts as a
                user error.
        """
        before = (self._monitor.phase, self._monitor.max_idle) if self._monitor is not None else ("start-up", math.inf)
        self._enter(phase, self.start_timeout)
        try:
            yield
        finally:
            # A caller may handle the error and go on, and its next phase must not have the longer timeout.
            self._enter(*before)

    # -- the end -----------------------------------------------------------------------------------------------------

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        monitor, self._monitor = self._monitor, None
        if monitor is None:
            return
        if hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread():
            # Torch's handler raises for every dead DataLoader worker; a second error would interrupt this hook.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if isinstance(exception, CollectiveError) and monitor.rank == 0:  # all ranks raise it
            log.error("%s", exception, extra=HIDDEN_ON_CONSOLE | event("run_failed", error=str(exception)))
            exception.is_logged = True
        if isinstance(exception, (CollectiveError, SystemExit)):
            monitor.leave(timeout=2 * GRACE)  # all ranks end with the same error
            return
        is_refused = monitor.phase.startswith((PREPARING, "start-up", "sanity check")) and is_user_error(exception)
        # The report carries the code to the other ranks, so that all of them exit alike.
        code = ExitCode.USER_ERROR if is_refused or isinstance(exception, BadBatchError) else ExitCode.FAILED
        first = monitor.resolve_first_failure(exception, code)
        if is_refused and first.rank == monitor.rank:
            log.error("%s", exception, extra=HIDDEN_ON_CONSOLE | event("run_failed", error=first.text))
            vars(exception)["is_logged"] = True
            return
        if first.rank == monitor.rank and not isinstance(exception, KeyboardInterrupt):
            advice = memory_advice(trainer, exception)  # replaces the traceback, which is in faults/
            message = f"{first.text}{monitor.oom_note()}" + (f"\n{advice}" if advice else "")
            is_explained = bool(advice) or is_full_disk(exception) or code == ExitCode.USER_ERROR
            failed = event("out_of_memory" if advice else "run_failed", error=first.text)
            log.error("%s", message, exc_info=None if is_explained else exception, extra=failed)
        vars(exception)["exit_code"] = first.exit_code  # read by commands.cli.error_reporting

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.leave()


def report_unhandled_exception(trainer: Trainer, exception: BaseException) -> None:
    """Report an error that ended a command, if no hook has handled it.

    A second dead DataLoader worker may raise while Lightning calls the hooks for the first worker.
    """
    for callback in as_run_trainer(trainer).callbacks:
        if isinstance(callback, Watchdog):
            callback.on_exception(trainer, trainer.lightning_module, exception)


def extended_timeout(trainer: Trainer, phase: str) -> AbstractContextManager[None]:
    """Return `Watchdog.extended_timeout` of the run's watchdog, or a null context if the run has no watchdog."""
    watchdogs = [callback for callback in as_run_trainer(trainer).callbacks if isinstance(callback, Watchdog)]
    return watchdogs[0].extended_timeout(phase) if watchdogs else nullcontext()


def _group_timeout(seconds: float) -> timedelta:
    """Return a timeout for PyTorch, whose store needs milliseconds in 31 bits: no limit becomes 24 days."""
    return timedelta(seconds=min(seconds, 24 * 86400))
