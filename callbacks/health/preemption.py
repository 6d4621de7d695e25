"""Preempts a run: after a stop signal all ranks save at the same step and end."""

import logging
import os
import signal
import time

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.checkpointing.last_checkpoint import save_last
from callbacks.health.slurm_requeue import requeue_job
from engine.distributed.step_counters import PollSchedule
from engine.health.exit_codes import ExitCode
from engine.health.signals import RunStopped, stop_signals
from engine.lightning_internals.processes import disable_signal_handlers
from engine.lightning_internals.training_loop import (
    clear_pending_validation,
    is_last_micro_batch,
    mark_validation_pending,
    validation_follows,
)
from engine.module import as_lockstep_module
from engine.number_check import check_number
from engine.run_trainer import as_run_trainer
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

STOP_COUNTER, CLOCK_COUNTER = "stop", "seconds"
"""Step counters: ranks with a stop signal, and rank 0's clock."""


class Preemption(Callback):
    """Stops a run on SIGTERM, SIGINT (Ctrl-C) or SIGUSR1 (SLURM) without losing a step.

    It suffices that a single rank receives the signal. All ranks save `last.ckpt` and end, with exit code 143, or 130
    after Ctrl-C. Under SLURM the job is requeued, but not after Ctrl-C. A second Ctrl-C, 2 s or more
    after the first, ends the process at once.

    Args:
        check_every_n_steps: optimizer steps (in an evaluation: batches) between two polls of the stop flag. By default
            every step on a CPU, and about every two seconds on a GPU, where a poll waits for the step (every step if
            steps take longer, at least every tenth). In an evaluation about every two seconds on any device (every
            batch if batches take longer, at least every tenth), because a poll communicates.
    """

    def __init__(self, check_every_n_steps: int | None = None) -> None:
        check_number("preemption.check_every_n_steps", check_every_n_steps, at_least=1)
        self.check_every_n_steps = check_every_n_steps

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        stop_signals.install_handlers()
        disable_signal_handlers(trainer)
        self._is_counted = self._must_stop = self._saved = False
        counters = as_lockstep_module(pl_module).counters
        counters.register(STOP_COUNTER)
        counters.register(CLOCK_COUNTER)
        on_cpu = trainer.strategy.root_device.type == "cpu"  # polling costs nothing there
        self._poll = PollSchedule(self.check_every_n_steps or (1 if on_cpu else None))
        self._clock = time.monotonic()

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_step = trainer.global_step
        if _largest_signal(trainer):
            self._stop(trainer)  # nothing to save: the run has just started or resumed

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if self._saved:
            self._stop(trainer)  # only now are the metrics of the last step logged

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._saved:
            self._stop(trainer)

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        # The module sends the counters at the end of its backward pass.
        counters = as_lockstep_module(pl_module).counters
        # Each rank counts once: STOP_COUNTER is the number of ranks with a signal.
        if stop_signals.received and not self._is_counted:
            self._is_counted = True
            counters.add(STOP_COUNTER)
        if trainer.is_global_zero:  # all ranks poll by its clock
            now = time.monotonic()
            counters.add(CLOCK_COUNTER, now - self._clock)
            self._clock = now

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if not is_last_micro_batch(trainer):
            return
        if not self._must_stop and self._poll.due(trainer.global_step):
            counters = as_lockstep_module(pl_module).counters
            # Equal on all ranks, so all of them stop after the same step.
            self._must_stop = counters.total(STOP_COUNTER) > 0
            if self._poll.is_adaptive:
                self._poll.record(trainer.global_step, counters.total(CLOCK_COUNTER))
        # If a validation or the end of the epoch follows, the checkpoint is saved there.
        if self._must_stop and not (trainer.is_last_batch or validation_follows(trainer)):
            self._save(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._must_stop and trainer.is_last_batch:
            self._save(trainer)

    # -- evaluation --------------------------------------------------------------------------------------------------

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            clear_pending_validation(trainer)
            # `on_train_batch_end` saves nothing before a validation. This checkpoint has the validation pending.
            if self._must_stop:
                self._stop_evaluation(trainer)

    @override
    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        # All ranks have the same number of batches (engine.data.samplers), so all of them get here.
        if trainer.sanity_checking:
            return
        if batch_idx == 0:
            self._evaluation_poll, self._evaluation_start = PollSchedule(self.check_every_n_steps), time.monotonic()
        if self._evaluation_poll.due(batch_idx + 1):
            number, seconds = _max_over_ranks(trainer, stop_signals.received, time.monotonic() - self._evaluation_start)
            self._evaluation_poll.record(batch_idx + 1, seconds)
            if number:
                self._stop_evaluation(trainer)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def _stop_evaluation(self, trainer: Trainer) -> None:
        if trainer.state.fn == "fit":
            mark_validation_pending(trainer)
            self._save(trainer)
        self._stop(trainer)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _save(self, trainer: Trainer) -> None:
        save_last(trainer)  # waits for an asynchronous writer: the process ends next
        self._saved = True

    def _stop(self, trainer: Trainer) -> None:
        # The ranks may have received different signals, and must end with the same exit code.
        number = _largest_signal(trainer)
        stopped = f"stopped by {signal.Signals(number).name}"
        extra = event("run_preempted", signal=signal.Signals(number).name, saved=self._saved)
        if trainer.state.fn != "fit":
            log.warning("%s before the end; there is nothing to save", stopped, extra=extra)
        elif as_run_trainer(trainer).fast_dev_run:
            log.warning("%s after step %d; a fast_dev_run saves nothing", stopped, trainer.global_step, extra=extra)
        else:
            saved = "saved" if self._saved else "nothing new to save"
            log.warning(
                "%s after step %d, %s; resume with the same command and --ckpt_path last",
                stopped, trainer.global_step, saved, extra=extra,
            )  # fmt: skip
            if number != signal.SIGINT and trainer.is_global_zero:
                requeue_job(os.environ, has_progress=trainer.global_step != self._first_step)
        raise RunStopped(ExitCode.SIGINT if number == signal.SIGINT else ExitCode.SIGTERM)


def _largest_signal(trainer: Trainer) -> int:
    """Return the largest signal number that any rank has received, 0 if none. A collective."""
    return int(_max_over_ranks(trainer, stop_signals.received)[0])


def _max_over_ranks(trainer: Trainer, *values: float) -> list[float]:
    """Return the maximum of each value over ranks. A collective."""
    # float32, because MPS has no float64. It holds every signal number exactly.
    largest = trainer.strategy.reduce(
        torch.tensor(values, dtype=torch.float32, device=trainer.strategy.root_device), reduce_op="max"
    )
    assert isinstance(largest, torch.Tensor), "a strategy reduces a tensor to a tensor"
    return largest.tolist()
