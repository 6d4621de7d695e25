"""Records a run for TensorBoard, the default logger."""

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import TensorBoardLogger
from typing_extensions import override

from engine.lightning_internals.loggers import NullExperiment, replace_event_file
from engine.telemetry.append_file import AppendOnlyFile
from engine.telemetry.log_events import event

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger("lockstep")

_FIRST_WRITE = 4096
"""Bytes that a file system must have room for when the event file is created; more than its first event."""


class TensorBoard(TensorBoardLogger):
    """Lightning's TensorBoardLogger that survives a full disk and writes no hparams.yaml, which would be empty.

    TensorBoard's writer thread ends with the first disk error and raises it from the next logging call, so events are
    written through an AppendOnlyFile.

    The event file is created when training begins or with the first metric. Lightning reads `experiment` of every
    logger before, when a run may still be refused. If the file cannot be created, a warning states the cause and the
    run continues without TensorBoard.
    """

    _begun = _is_open = _failed = False

    def begin(self) -> None:
        """Allow the event file to be created."""
        self._begun = True

    @property
    @rank_zero_experiment
    @override
    def experiment(self) -> "SummaryWriter | NullExperiment":
        # Lightning reads the attribute of every logger before the setup hooks.
        if not self._begun or self._failed:
            return NullExperiment()
        if not self._is_open:
            try:
                _require_room(Path(self.log_dir))
                replace_event_file(super().experiment, lambda path: AppendOnlyFile(Path(path), has_lines=False))
            except OSError as error:
                self._failed = True
                fields = event("tracker_failed", tracker="tensorboard", error=str(error))
                text = "TensorBoard cannot write into %s (%s); the run continues without it"
                log.warning(text, self.log_dir, error, extra=fields)
                return NullExperiment()
            self._is_open = True
        return super().experiment

    @override
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.begin()
        super().log_metrics(metrics, step)

    @override
    def save(self) -> None:
        # Skip TensorBoardLogger.save, which writes hparams.yaml.
        super(TensorBoardLogger, self).save()


def _require_room(folder: Path) -> None:
    """Check that a file can be created: TensorBoard writes its first event in a thread, which would print a traceback.

    Raises:
        OSError: there is no space, no free inode or no permission.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_FIRST_WRITE))
