"""Defines the base class of loggers that receive the metrics of a run and nothing else."""

from lightning.pytorch.loggers.logger import Logger
from typing_extensions import override


class MetricSink(Logger):
    """Lightning logger without hyperparameters and versions. A subclass implements `log_metrics`.

    Args:
        name: name of the logger, unique in a run.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    @override
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: object, *args: object, **kwargs: object) -> None:
        """Do nothing, because config.yaml has the hyperparameters."""
