"""The loggers of a run: those of `trainer.logger`, and the trackers that have been told where to record."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from callbacks.mlflow_record import MLflow
from callbacks.tensorboard import TensorBoard
from callbacks.tracker import Tracker
from callbacks.weights_and_biases import WeightsAndBiases

log = logging.getLogger("lockstep")

TRACKERS: dict[type[Tracker], str] = {WeightsAndBiases: "project", MLflow: "experiment"}
"""And the setting that turns each one on."""


def loggers_of(given: Any, trackers: Mapping[str, Any], folder: Path, config: Mapping[str, Any]) -> list[Logger]:
    """TensorBoard where nothing else is said, and a tracker beside it that has a place for the run.

    Args:
        given: `trainer.logger`.
        trackers: the settings of each, by its key.
        folder: of the run.
        config: of the run.
    """
    loggers = [TensorBoard(folder.parent, name=folder.name, version="")] if given in (None, True) else given or []
    loggers = list(loggers) if isinstance(loggers, Iterable) else [loggers]
    for tracker, place in TRACKERS.items():
        settings = trackers[tracker.KEY]
        if getattr(settings, place):
            loggers.append(tracker(settings, folder, config))
            continue
        defaults = type(settings)()
        for key, value in vars(settings).items():
            if value != getattr(defaults, key):
                records = f"{tracker.PROGRAM} records where there is a --{tracker.KEY}.{place}"
                log.warning("WARNING: %s.%s has no effect: %s", tracker.KEY, key, records)
    return loggers
