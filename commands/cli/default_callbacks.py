"""Adds the callbacks that every run has, in their required order, around the callbacks of its config."""

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ProgressBar

from callbacks.checkpointing.early_stopping_resume import EarlyStoppingFromConfig
from callbacks.checkpointing.epoch_end_resume import ResumeAtEpochEnd
from callbacks.checkpointing.final_validation import FinalValidation
from callbacks.checkpointing.log_step_resume import ResumeLogStep
from callbacks.checkpointing.pending_validation import ResumePendingValidation
from callbacks.guards.bad_sample_limit import BadSampleLimit
from callbacks.guards.run_directory_guard import RunDirectoryGuard
from callbacks.health.memory_monitor import MemoryMonitor
from callbacks.health.watchdog import Watchdog
from callbacks.logging.prediction_writer import PredictionWriter
from callbacks.logging.progress_bar import RunProgressBar
from callbacks.logging.results_table import ResultsPrinter, ResultsTable
from callbacks.logging.run_log import RunLog
from callbacks.performance.auto_micro_batch import AutoMicroBatch
from callbacks.performance.cpu_threads import CpuThreads, KnownThreads
from callbacks.performance.energy_monitor import EnergyMonitor
from callbacks.prometheus.exporter import PrometheusExporter
from commands.cli.console_logging import LogSettings
from engine.lightning_internals.training_loop import skip_empty_hooks
from engine.run_trainer import as_run_trainer


def with_progress_bar(settings: Mapping[str, Any]) -> list[Callback]:
    """Return the callbacks of the trainer's settings, with RunProgressBar unless the user gives or disables a bar."""
    user_callbacks = settings.get("callbacks") or []
    callbacks = [*user_callbacks] if isinstance(user_callbacks, list) else [user_callbacks]
    disabled = settings.get("enable_progress_bar") is False
    if disabled or any(isinstance(callback, ProgressBar) for callback in callbacks):
        return callbacks
    return [*callbacks, RunProgressBar()]


def add_default_callbacks(
    trainer: Trainer, keep_config: Callable[[], object], log: LogSettings, altered: str, threads: KnownThreads
) -> None:
    """Add the callbacks of every run around the callbacks of the command line.

    Args:
        trainer: has the callbacks of the command line, including Watchdog.
        keep_config: writes the config; called when training begins.
        log: console settings.
        altered: changed settings of an evaluation, see `changed_evaluation_keys`.
        threads: known number of threads.
    """
    run_log, table = RunLog(keep_config, log.level == "debug", altered), ResultsTable()
    callbacks = as_run_trainer(trainer).callbacks
    if auto := getattr(trainer, "auto_micro_batch", False):
        callbacks.append(AutoMicroBatch(if_possible=auto == "if_possible"))
    callbacks.append(CpuThreads(threads))  # after AutoMicroBatch, whose micro-batch it times
    callbacks[:0] = [
        ResumeLogStep(), run_log, RunDirectoryGuard(), MemoryMonitor(), EnergyMonitor(), BadSampleLimit(),
        PredictionWriter(), EarlyStoppingFromConfig(), FinalValidation(), ResumeAtEpochEnd(),
        ResumePendingValidation(), table,
    ]  # fmt: skip
    watchdog = next(callback for callback in callbacks if isinstance(callback, Watchdog))
    watchdog.attach(trainer)
    callbacks.remove(watchdog)
    callbacks.insert(0, watchdog)  # gets errors before callbacks that wait for other ranks
    for endpoint in [callback for callback in callbacks if isinstance(callback, PrometheusExporter)]:
        endpoint.attach(trainer, watchdog)
    if log.console == "text":
        callbacks.append(ResultsPrinter(table))  # torn down last
    skip_empty_hooks(callback for callback in callbacks if is_default_callback(callback))


def is_default_callback(callback: Callback) -> bool:
    """Return whether a callback is Lockstep's own, not Lightning's or a user's."""
    return type(callback).__module__.partition(".")[0] == "callbacks"
