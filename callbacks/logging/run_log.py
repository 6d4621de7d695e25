"""Writes a run's logs: train.log, log.jsonl, metrics.jsonl and environment.json."""

import json
import logging
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.logging.file_handlers import JsonLogFile, LogFile
from callbacks.logging.jsonl_logger import JsonlLogger
from callbacks.logging.progress_bar import RunProgressBar, TimeLeft
from callbacks.trackers.experiment_tracker import ExperimentTracker
from callbacks.trackers.loggers import begin_trackers
from callbacks.trackers.tensorboard import TensorBoard
from engine.io.atomic_file import write_atomically
from engine.lightning_internals.training_loop import unlogged_metrics
from engine.run_trainer import as_run_trainer
from engine.system.installation import checkout_commit, package_version
from engine.telemetry.json_formatter import JsonFormatter
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE, event
from engine.telemetry.startup_log_buffer import StartupLogBuffer, replay_startup_log

log = logging.getLogger("lockstep")

_PACKAGES = ("lockstep", "torch", "lightning", "torchmetrics", "jsonargparse", "numpy", "polars")


class RunLog(Callback):
    """Writes train.log, log.jsonl, metrics.jsonl and environment.json to the run's folder on rank 0.

    Other ranks write log-RANK.jsonl with the records that rank 0 does not have.

    Args:
        keep_config: called when training begins, so that a start that is refused before leaves no config.
        debug: whether log.jsonl includes debug records. train.log always does.
        altered: settings of an evaluation that differ from the run's; empty if there are none.
    """

    _metrics: JsonlLogger | None = None
    _loaded: tuple[int, int] | None = None
    """Step and epoch of the loaded checkpoint."""
    _unlogged: dict[str, float] = {}
    """Metrics of the loaded checkpoint's step that no logger had received when it was saved."""

    def __init__(
        self, keep_config: Callable[[], object] = lambda: None, debug: bool = False, altered: str = ""
    ) -> None:
        self._keep_config, self._level, self._altered = keep_config, logging.DEBUG if debug else logging.INFO, altered
        self._training, self._time_left = False, TimeLeft()

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        folder = Path(trainer.default_root_dir)
        if trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
        command = trainer.state.fn.value if trainer.state.fn else None
        rank = trainer.global_rank
        # All ranks write their records as JSON; rank 0 alone writes text and metrics.
        json_formatter = JsonFormatter(
            folder.name, rank, lambda: self._step(trainer), command, local_rank=trainer.local_rank
        )
        # The file is opened at once: records of the start are replayed into it, so nothing is lost.
        self._attach(JsonLogFile(folder, rank), self._level, json_formatter)
        for handler in log.handlers:
            if isinstance(handler.formatter, JsonFormatter):  # the console's, which does not know the step yet
                handler.setFormatter(json_formatter)
        if not trainer.is_global_zero:
            return
        prefix = f"[rank {rank}, local rank {trainer.local_rank}] " if trainer.world_size > 1 else ""
        text_formatter = logging.Formatter(f"%(asctime)s %(levelname)-7s {prefix}%(message)s")
        self._attach(LogFile(folder / "train.log"), logging.DEBUG, text_formatter)
        self._metrics = JsonlLogger(folder / "metrics.jsonl", lambda: self._progress(trainer), self._altered)
        for tracker in trainer.loggers:
            if isinstance(tracker, ExperimentTracker):
                # The same steps as in metrics.jsonl.
                tracker.finished_steps = lambda: self._progress(trainer)[0]
        # Added here, so that every run has metrics.jsonl, whatever `trainer.logger` is.
        trainer.loggers = [*trainer.loggers, self._metrics]
        bar = trainer.progress_bar_callback
        if bar is not None:
            self._metrics.progress_bar_visible = not getattr(bar, "is_disabled", False)
        if isinstance(bar, RunProgressBar):
            bar.latest_metrics = lambda: self._metrics.latest if self._metrics is not None else {}
            bar.time_left = self._time_left

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # All handlers of the run exist now, and have received the first records.
        _remove_startup_buffer()
        if not trainer.is_global_zero:
            return
        # Rewritten by every start: versions and devices may change between them.
        facts = describe_environment(trainer)
        folder = Path(trainer.default_root_dir)
        write_atomically(folder / "environment.json", f"{json.dumps(facts, indent=2)}\n".encode())
        log.info(
            "run folder %s; world size %d, device %s, precision %s",
            folder, trainer.world_size, facts["device"], trainer.precision,
        )  # fmt: skip

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        begin_trackers(trainer)  # before the config is kept, because a tracker may refuse the run
        self._training = True
        if self._metrics is None:
            return
        self._keep_config()
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoard):
                logger.begin()
        # The steps after the checkpoint are trained again and logged again.
        self._metrics.drop_after(trainer.global_step)
        self._log_lost_metrics(trainer)
        self._start = time.monotonic()
        planned = trainer.estimated_stepping_batches
        self._time_left.begin(trainer.global_step, planned)
        interval = as_run_trainer(trainer).log_every_n_steps
        # Lightning returns -1 for a stream without `max_steps`, whose end it does not know.
        if 0 < planned < interval:
            log.warning(
                "trainer.log_every_n_steps %d is more than the %d steps of this training: train/loss is never logged; "
                "set it to %d or less", interval, planned, planned,
            )  # fmt: skip
        fields = {"epoch": trainer.current_epoch, "processes": trainer.world_size}
        if trainer.global_step:
            resumed = event("run_resumed", **fields, path=str(trainer.ckpt_path))
            log.info("resuming after step %d (epoch %d)", trainer.global_step, trainer.current_epoch, extra=resumed)
        else:
            log.info("training starts", extra=HIDDEN_ON_CONSOLE | event("run_started", **fields))

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._metrics is None:
            return
        if not self._training:  # Lightning has skipped the training loop
            log.info("nothing left to train: %s", _reached_limit(trainer))
        else:
            seconds = time.monotonic() - self._start
            ended = event("run_ended", epoch=trainer.current_epoch, seconds=round(seconds, 3))
            message = "training ended after step %d, %.0f s after this start"
            log.info(message, trainer.global_step, seconds, extra=HIDDEN_ON_CONSOLE | ended)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        log.debug("stopped at step %d", trainer.global_step, exc_info=exception)
        self.teardown(trainer, pl_module, "")  # Lightning does not call it after an exception

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._metrics is not None:
            self._metrics.close()
        _remove_startup_buffer()
        # A copy, because handlers are removed meanwhile.
        for handler in list(log.handlers):
            if isinstance(handler, (LogFile, JsonLogFile)):
                log.removeHandler(handler)
                handler.close()

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._loaded = checkpoint["global_step"], checkpoint["epoch"]
        self._unlogged = checkpoint.get("unlogged_metrics", {})

    @override
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        checkpoint["unlogged_metrics"] = unlogged_metrics(trainer) if trainer.state.fn == "fit" else {}

    def _log_lost_metrics(self, trainer: Trainer) -> None:
        """Log the metrics of the checkpoint's step if the run was killed between the checkpoint and the loggers."""
        assert self._metrics is not None
        if self._unlogged and self._metrics.last_training_step < trainer.global_step:
            metrics = {**self._unlogged, "epoch": trainer.current_epoch}
            for logger in trainer.loggers:
                logger.log_metrics(metrics, trainer.global_step - 1)  # Lightning counts steps from 0

    def _progress(self, trainer: Trainer) -> tuple[int, int]:
        """Return (optimizer steps, epoch) of training, or of the evaluated checkpoint."""
        if trainer.state.fn == "fit":
            return trainer.global_step, trainer.current_epoch
        return self._loaded or (0, 0)

    def _step(self, trainer: Trainer) -> int | None:
        """Return the step of training or of the evaluated checkpoint; None before either is known."""
        if trainer.state.fn == "fit":
            return trainer.global_step if self._training else None
        return self._loaded[0] if self._loaded is not None else None

    @staticmethod
    def _attach(handler: logging.Handler, level: int, formatter: logging.Formatter) -> None:
        handler.setLevel(level)
        handler.setFormatter(formatter)
        replay_startup_log(log, handler)
        log.addHandler(handler)


def _reached_limit(trainer: Trainer) -> str:
    """Return why there is no step to train, and the setting to change."""
    if 0 <= trainer.max_steps <= trainer.global_step:
        return f"trainer.max_steps {trainer.max_steps} is reached; raise it to train on"
    if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= trainer.current_epoch:
        return f"trainer.max_epochs {trainer.max_epochs} is reached; raise it to train on"
    return f"there are no training batches after step {trainer.global_step}"


def _remove_startup_buffer() -> None:
    for handler in [handler for handler in log.handlers if isinstance(handler, StartupLogBuffer)]:
        log.removeHandler(handler)


def describe_environment(trainer: Trainer) -> dict[str, Any]:
    """Return what the results of a run depend on besides its config: precision, device, versions, commit."""
    return {
        "precision": trainer.precision,
        "device": str(trainer.strategy.root_device),
        "processes": trainer.world_size,
        "nodes": trainer.num_nodes,
        "accumulation": trainer.accumulate_grad_batches,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: package_version(name) for name in _PACKAGES},
        "commit": _commit(),
    }


def _commit() -> str | None:
    """Return the commit of the checkout, with `-dirty` if it has changes, or the commit of the container image."""
    return checkout_commit() or os.environ.get("LOCKSTEP_COMMIT") or None
