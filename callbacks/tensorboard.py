"""TensorBoard's record of a run."""

from pathlib import Path
from typing import TYPE_CHECKING

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import TensorBoardLogger

from engine.appended_file import AppendedFile

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(TensorBoardLogger):
    """Lightning's, which a full disk does not end, and without hparams.yaml, which would be empty.

    TensorBoard's thread ends with the first error of the disk, and the error is raised where the next figure is logged.
    """

    @property
    @rank_zero_experiment
    def experiment(self) -> "SummaryWriter":
        if self._experiment is None:
            writer = TensorBoardLogger.experiment.fget(self).file_writer.event_writer  # type: ignore[attr-defined]
            # Its first event is on the disk; the next ones are appended.
            writer._async_writer._writer._writer = AppendedFile(Path(writer._file_name))
        return self._experiment

    def save(self) -> None:
        super(TensorBoardLogger, self).save()
