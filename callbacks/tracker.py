"""What the records of a run that other programs keep (W&B, MLflow) have in common."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Trainer
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from numpy.typing import NDArray

from engine.events import event

log = logging.getLogger("lockstep")

FINISH_PATIENCE = 60.0
"""Seconds for the last figures to be sent; without a network they would take for ever."""


class Tracker(Logger):
    """One record for all starts of a run, which the first process keeps, and which can fail without the run.

    Like TensorBoard's, the record begins with training or with the first figure. Its id is kept in the run's folder.
    A new run is refused where the settings cannot give it a record: nobody should find that out after hours. A run that
    has begun before goes on without, as after an error in the middle.
    """

    PROGRAM: str
    """Its name, for people."""
    KEY: str
    """Its name in the config, and of its folder in the run's."""

    folder: Path
    """The run's."""
    run_config: Mapping[str, Any]
    """The run's, shown beside its figures."""
    finished_steps: Callable[[], int] | None = None
    """Counts a figure's step as metrics.jsonl does; None: as Lightning does, from 0."""

    _begun = _ended = False
    _takes_pictures = True

    @abstractmethod
    def _open(self, run_id: str | None) -> str:
        """Begins the record, or goes on with the one of this id; returns its id."""

    @abstractmethod
    def _tell_config(self) -> None:
        """Adds the run's config to the record."""

    @abstractmethod
    def _record(self, metrics: Mapping[str, float], step: int) -> None:
        """Adds figures to the record."""

    @abstractmethod
    def _record_picture(self, name: str, picture: NDArray[np.uint8], step: int) -> None:
        """Adds a picture to the record, [height, width, 3]."""

    @abstractmethod
    def _close(self, status: str) -> None:
        """Ends the record of this start; Lightning's status is success, or failed."""

    @abstractmethod
    def _remedy(self, error: Exception) -> str | None:
        """What to change, where settings may be the reason that there is no record."""

    @rank_zero_only
    def begin(self) -> None:
        """From now on there is a record; where the tracker itself is at fault, none.

        Raises:
            ValueError: a new run cannot have a record with these settings.
        """
        self._begin(refuse=True)

    def _begin(self, refuse: bool) -> None:
        if self._begun:
            return
        self._begun = True
        file = self.folder / self.KEY / "run-id"
        known = file.read_text(encoding="ascii").strip() if file.exists() else None
        new = known is None and not (self.folder / "config.yaml").exists()  # training begins with its config
        try:
            run_id = self._open(known)
            new = False
            if run_id != known:  # kept at once: whatever fails from here on, the next start finds this record
                _keep(run_id, file)
            self._tell_config()
        except Exception as error:
            remedy = self._remedy(error)
            if refuse and new and remedy:
                self._ended = True
                said = next(iter(str(error).splitlines()), repr(error)).rstrip(".")
                raise ValueError(f"{self.PROGRAM} does not begin a record: {said}. {remedy}") from error
            self._fail("does not begin a record", error, "this run goes on without it")

    def _fail(self, what: str, error: Exception, then: str) -> None:
        self._ended = True
        told = event("tracker_failed", tracker=self.KEY, error=str(error))
        log.warning("WARNING: %s %s (%s); %s", self.PROGRAM, what, error, then, extra=told)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The whole config is there already."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._begin(refuse=False)  # figures are there already, of an evaluation
        if self._ended:
            return
        try:
            self._record(metrics, self.finished_steps() if self.finished_steps else step or 0)
        except Exception as error:
            self._lose(error)

    @rank_zero_only
    def log_picture(self, name: str, picture: NDArray[np.uint8], step: int) -> None:
        """Beside the figures. A record that has no place for pictures goes on without them.

        Args:
            picture: [height, width, 3].
            step: finished ones.
        """
        if self._begun and not self._ended and self._takes_pictures:
            try:
                self._record_picture(name, picture, step)
            except Exception as error:
                self._refuse_pictures(error)

    def _refuse_pictures(self, error: Exception) -> None:
        self._takes_pictures = False
        log.warning("WARNING: %s takes no pictures (%s); examples go on in the run's folder", self.PROGRAM, error)

    def _lose(self, error: Exception) -> None:
        self._fail("records no more of this run", error, "its figures go on in metrics.jsonl")

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if not self._begun:
            return
        try:
            self._close(status)
        except Exception as error:
            self._fail("has no proper end of this record", error, "metrics.jsonl has all figures")
        self._ended = True


def begin_trackers(trainer: Trainer) -> None:
    """Begins the records of a run, on its first process. All processes must call.

    Raises:
        ValueError: on all processes alike: a new run cannot have a record with these settings.
    """
    trackers = [logger for logger in trainer.loggers if isinstance(logger, Tracker)]
    if not trackers:
        return
    refused: ValueError | None = None
    if trainer.is_global_zero:
        try:
            for tracker in trackers:
                tracker.begin()
        except ValueError as error:
            refused = error
    said = trainer.strategy.broadcast(refused and str(refused))
    if said:
        raise refused or ValueError(said)


def _keep(run_id: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_text(run_id + "\n", encoding="ascii")
    beside.replace(file)
