"""A run that is told to stop saves and ends, all of its processes together and at the same step."""

import logging
import os
import signal
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.last_checkpoint import LastCheckpoint
from callbacks.requeue import requeue_job
from engine.events import event
from engine.looks import Looks
from engine.stop_signals import Stopped, stop_signals

log = logging.getLogger("lockstep")

VOTE, SECONDS = "stop", "seconds"


class Preemption(Callback):
    """SIGTERM, SIGINT (Ctrl-C) and SIGUSR1 (SLURM) stop a run without losing a step; one process has to get it.

    The processes agree, save `last.ckpt` and end: exit code 143, after Ctrl-C 130. Under SLURM the job puts itself
    back into the queue. A second Ctrl-C ends at once.

    Args:
        check_every_n_steps: optimizer steps (in an evaluation: batches) between two looks at what was agreed. By
            default every step on a CPU, about every two seconds on a GPU (every step if it takes longer, at least
            every tenth), where a look waits for the step.
    """

    def __init__(self, check_every_n_steps: int | None = None) -> None:
        if check_every_n_steps is not None and check_every_n_steps < 1:
            raise ValueError(f"preemption.check_every_n_steps must be at least 1, got {check_every_n_steps}")
        self.check_every_n_steps = check_every_n_steps

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        stop_signals.listen()
        leave_signals_alone(trainer)
        self._has_voted = self._agreed = self._saved = False
        pl_module.votes.open(VOTE)
        pl_module.votes.open(SECONDS)
        on_cpu = trainer.strategy.root_device.type == "cpu"  # a look costs nothing there
        self._looks = Looks(self.check_every_n_steps or (1 if on_cpu else None))
        self._clock = time.monotonic()

    # -- training ----------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_step = trainer.global_step
        if _strongest(trainer):
            self._stop(trainer)  # what has been trained so far is in the checkpoint that it came from

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._saved:
            self._stop(trainer)  # not at the end of the last step, whose figures were still to be logged

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._saved:
            self._stop(trainer)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if stop_signals.received and not self._has_voted:
            self._has_voted = True
            pl_module.votes.cast(VOTE)
        if trainer.is_global_zero:  # its clock counts for all
            now = time.monotonic()
            pl_module.votes.cast(SECONDS, now - self._clock)
            self._clock = now

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loop = trainer.fit_loop.epoch_loop
        if loop._should_accumulate():
            return
        if not self._agreed and self._looks.due(trainer.global_step):
            self._agreed = pl_module.votes.total(VOTE) > 0
            self._looks.looked(trainer.global_step, pl_module.votes.total(SECONDS))
        # With a validation to come, or an epoch to end, the checkpoint is written there.
        if self._agreed and not (trainer.is_last_batch or loop._should_check_val_fx(trainer.fit_loop._data_fetcher)):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._agreed and trainer.is_last_batch:
            self._save(trainer)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.reset()  # see _validation_is_due
            if self._agreed:
                self._stop_evaluation(trainer)

    def _on_evaluation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        # All processes have the same number of batches (engine.sampling), so all of them are here.
        batch_idx = args[2]
        if trainer.sanity_checking:
            return
        if batch_idx == 0:
            self._evaluation_looks, self._evaluation_began = Looks(self.check_every_n_steps), time.monotonic()
        if self._evaluation_looks.due(batch_idx + 1):
            number, seconds = _largest(trainer, stop_signals.received, time.monotonic() - self._evaluation_began)
            self._evaluation_looks.looked(batch_idx + 1, seconds)
            if number:
                self._stop_evaluation(trainer)

    on_validation_batch_end = on_test_batch_end = on_predict_batch_end = _on_evaluation_batch_end

    def _stop_evaluation(self, trainer: Trainer) -> None:
        if trainer.state.fn == "fit":
            _validation_is_due(trainer)
            self._save(trainer)
        self._stop(trainer)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _save(self, trainer: Trainer) -> None:
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, LastCheckpoint) and not trainer.fast_dev_run:
                callback.save_now(trainer)
        self._saved = True

    def _stop(self, trainer: Trainer) -> None:
        number = _strongest(trainer)
        told = f"stopped by {signal.Signals(number).name}"
        extra = event("run_preempted", signal=signal.Signals(number).name, saved=self._saved)
        if trainer.state.fn != "fit":
            log.warning("%s before the end; there is nothing to save", told, extra=extra)
        elif trainer.fast_dev_run:
            log.warning("%s after step %d; a fast_dev_run saves nothing", told, trainer.global_step, extra=extra)
        else:
            saved = "saved" if self._saved else "nothing new to save"
            log.warning(
                "%s after step %d, %s; go on with the same command and --ckpt_path last",
                told, trainer.global_step, saved, extra=extra,
            )  # fmt: skip
            if number != signal.SIGINT and trainer.is_global_zero:
                requeue_job(os.environ, has_moved=trainer.global_step != self._first_step)
        raise Stopped(130 if number == signal.SIGINT else 143)


def _strongest(trainer: Trainer) -> int:
    """The largest signal number that any process has received; a collective."""
    return int(_largest(trainer, stop_signals.received)[0])


def _largest(trainer: Trainer, *values: float) -> list[float]:
    """Of each value the largest that any process has; a collective."""
    mine = torch.tensor(values, dtype=torch.float32, device=trainer.strategy.root_device)
    return trainer.strategy.reduce(mine, reduce_op="max").tolist()  # type: ignore[union-attr]


def _validation_is_due(trainer: Trainer) -> None:
    """A checkpoint of now has the validation begun and none of it done, so the resumed run does it from its start.

    Lightning takes up a validation where one batch is started and not processed; the batches that were done count no
    more, as the sums over them are not in a checkpoint.
    """
    progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
    progress.reset()
    progress.increment_ready()
    progress.increment_started()


def leave_signals_alone(trainer: Trainer) -> None:
    """Lightning's handlers, which save and enter collectives wherever they meet a step, and its broadcast per step.

    Raises:
        AttributeError: Lightning has renamed them.
    """
    connector, loop = trainer._signal_connector, trainer.fit_loop.epoch_loop
    for owner, name in ((connector, "register_signal_handlers"), (loop, "_broadcast_sigterm_tensor")):
        if not callable(getattr(owner, name, None)):
            raise AttributeError(f"{type(owner).__name__}.{name} is not what it was in Lightning 2.6")
        setattr(owner, name, lambda: None)
