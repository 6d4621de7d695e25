"""Lists the experiment trackers. The command line takes their options, extras and loggers from this list."""

from typing import Any

from callbacks.trackers.experiment_tracker import ExperimentTracker
from callbacks.trackers.mlflow import MLflow, MLflowSettings
from callbacks.trackers.wandb import WandbSettings, WeightsAndBiases

TRACKERS: dict[type[ExperimentTracker], type[Any]] = {WeightsAndBiases: WandbSettings, MLflow: MLflowSettings}
"""{tracker: its settings}. A field `x` of the settings is the option `--KEY.x`; the extra of setup.cfg is named KEY."""
