"""Creates the loggers of a run, and starts the runs of its trackers."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers.logger import Logger

from callbacks.trackers.experiment_tracker import ExperimentTracker
from callbacks.trackers.tensorboard import TensorBoard

log = logging.getLogger("lockstep")


def create_loggers(
    logger: Any, trackers: Mapping[type[Any], Any], folder: Path, config: Mapping[str, Any]
) -> list[Logger]:
    """Return the loggers of a run: `trainer.logger`, by default TensorBoard, and the enabled trackers.

    A setting of a tracker that is not enabled logs a warning.

    Args:
        logger: value of `trainer.logger`.
        trackers: settings of each ExperimentTracker class.
        folder: folder of the run.
        config: config of the run.
    """
    # An empty version: all starts write into the run's folder itself.
    loggers = [TensorBoard(folder.parent, name=folder.name, version="")] if logger in (None, True) else logger or []
    loggers = list(loggers) if isinstance(loggers, Iterable) else [loggers]
    for tracker, settings in trackers.items():
        if getattr(settings, tracker.ENABLED_BY):
            loggers.append(tracker(settings, folder, config))
            continue
        defaults = type(settings)()
        for key, value in vars(settings).items():
            if value != getattr(defaults, key):
                enabled_by = f"--{tracker.KEY}.{tracker.ENABLED_BY}"
                log.warning("%s.%s has no effect without %s", tracker.KEY, key, enabled_by)
    return loggers


def begin_trackers(trainer: Trainer) -> None:
    """Start the tracker runs on rank 0. All ranks must call this function.

    Raises:
        ValueError: on all ranks, if the settings of a new run prevent a tracker run.
    """
    trackers = [logger for logger in trainer.loggers if isinstance(logger, ExperimentTracker)]
    if not trackers:
        return
    refusal: ValueError | None = None
    if trainer.is_global_zero:
        try:
            for tracker in trackers:
                tracker.begin()
        except ValueError as error:
            refusal = error
    # Rank 0 alone has trackers. Its refusal must end all ranks, which would wait for it otherwise.
    message = trainer.strategy.broadcast(refusal and str(refusal))
    if message:
        raise refusal or ValueError(message)
