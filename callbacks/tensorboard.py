"""TensorBoard's record of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lightning.fabric.loggers.logger import _DummyExperiment, rank_zero_experiment
from lightning.pytorch.loggers import TensorBoardLogger

from engine.appended_file import AppendedFile

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(TensorBoardLogger):
    """Lightning's, which a full disk does not end, and without hparams.yaml, which would be empty.

    TensorBoard's thread ends with the first error of the disk, and the error is raised where the next figure is logged.

    Its file begins with training or with the first figure: Lightning asks every logger for its `experiment` before it
    knows whether there will be anything to record.
    """

    _begun = False

    def begin(self) -> None:
        """From now on there is a file."""
        self._begun = True

    @property
    @rank_zero_experiment
    def experiment(self) -> "SummaryWriter | _DummyExperiment":
        if not self._begun:
            return _DummyExperiment()
        if self._experiment is None:
            writer = TensorBoardLogger.experiment.fget(self).file_writer.event_writer  # type: ignore[attr-defined]
            # Its first event is on the disk; the next ones are appended.
            writer._async_writer._writer._writer = AppendedFile(Path(writer._file_name))
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.begin()
        super().log_metrics(metrics, step)

    def save(self) -> None:
        super(TensorBoardLogger, self).save()
