"""Defines the base class of the experiment trackers (W&B, MLflow)."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from numpy.typing import NDArray
from typing_extensions import override

from engine.io.atomic_file import write_atomically
from engine.io.error_line import first_line
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

FINISH_TIMEOUT = 60.0
"""Seconds to wait at the end for the last metrics to be sent. Without a network, sending never ends."""


class ExperimentTracker(Logger):
    """Logger that keeps one tracker run for all starts of a run and whose failure does not end training.

    Only rank 0 records. The tracker run starts with training or with the first metric, and its id is stored in the
    run's folder. A new run is refused if its settings prevent a tracker run, so that the error appears at once and not
    after hours. A resumed run only logs a warning and continues without the tracker, as after an error in training.
    """

    PROGRAM: str
    """Name of the program in messages."""
    KEY: str
    """Key of the settings in the config, and name of the tracker's folder in the run's folder."""
    ENABLED_BY: str
    """Setting that turns the tracker on."""

    folder: Path
    """Folder of the run."""
    run_config: Mapping[str, Any]
    """Config of the run, recorded beside its metrics."""
    finished_steps: Callable[[], int] | None = None
    """Returns the step as metrics.jsonl counts it; None: Lightning's step, which counts from 0."""

    _started = _ended = False
    _accepts_images = True

    @abstractmethod
    def _open_run(self, run_id: str | None) -> str:
        """Start a tracker run, or continue the run with this id. Return its id."""

    @abstractmethod
    def _log_config(self) -> None:
        """Record the run's config."""

    @abstractmethod
    def _log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Record metrics."""

    @abstractmethod
    def _log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Record an image, [height, width, 3]."""

    @abstractmethod
    def _close_run(self, status: str) -> None:
        """End the tracker run of this start. Lightning's status is `success` or `failed`."""

    @abstractmethod
    def _remedy(self, error: Exception) -> str | None:
        """Return the setting to change if the error may be due to the settings, otherwise None."""

    @rank_zero_only
    def begin(self) -> None:
        """Start the tracker run. An error that no setting can fix is logged only.

        Raises:
            ValueError: the run is new and its settings prevent a tracker run.
        """
        self._begin(refuse=True)

    def _begin(self, refuse: bool) -> None:
        if self._started:
            return
        # The flag is set before the attempt: a tracker that fails is not tried again in this process.
        self._started = True
        id_file = self.folder / self.KEY / "run-id"
        is_new = False
        try:
            known_id = id_file.read_text(encoding="ascii").strip() if id_file.exists() else None
            is_new = known_id is None and not (self.folder / "config.yaml").exists()  # written when training begins
            run_id = self._open_run(known_id)
            is_new = False
            if run_id != known_id:  # stored before anything else can fail, so that the next start continues this run
                write_atomically(id_file, f"{run_id}\n".encode("ascii"))
            self._log_config()
        except Exception as error:
            remedy = self._remedy(error)
            if refuse and is_new and remedy:
                self._ended = True
                reason = first_line(error).rstrip(".")
                raise ValueError(f"{self.PROGRAM} cannot start a run: {reason}. {remedy}") from error
            self._fail("cannot start a run", error, "training continues without it")

    def _fail(self, problem: str, error: Exception, consequence: str) -> None:
        self._ended = True
        fields = event("tracker_failed", tracker=self.KEY, error=str(error))
        log.warning("%s %s (%s); %s", self.PROGRAM, problem, error, consequence, extra=fields)

    def log_hyperparams(self, params: object, *args: object, **kwargs: object) -> None:
        """Do nothing, because the whole config is recorded at the start."""

    @rank_zero_only
    @override
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._begin(refuse=False)  # an evaluation has its metrics already, so it is too late to refuse
        if self._ended:
            return
        try:
            self._log_metrics(metrics, self.finished_steps() if self.finished_steps else step or 0)
        except Exception as error:
            self._stop_recording(error)

    @rank_zero_only
    def log_preview(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Record an image. A tracker that does not accept images continues without them.

        Args:
            name: name like a metric's: `val/examples`.
            image: [height, width, 3].
            step: number of finished optimizer steps.
        """
        if self._started and not self._ended and self._accepts_images:
            try:
                self._log_image(name, image, step)
            except Exception as error:
                self._stop_images(error)

    def _stop_images(self, error: Exception) -> None:
        self._accepts_images = False
        log.warning("%s does not accept images (%s); the run's folder has them", self.PROGRAM, error)

    def _stop_recording(self, error: Exception) -> None:
        self._fail("stopped recording", error, "metrics.jsonl has all metrics")

    @rank_zero_only
    @override
    def finalize(self, status: str) -> None:
        if not self._started:
            return
        try:
            self._close_run(status)
        except Exception as error:
            self._fail("did not close its run", error, "metrics.jsonl has all metrics")
        self._ended = True
