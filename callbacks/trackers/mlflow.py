"""Records a run in MLflow."""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from lightning.fabric.loggers.logger import rank_zero_experiment
from numpy.typing import NDArray
from typing_extensions import override

from callbacks.trackers.background_sender import BackgroundSender
from callbacks.trackers.experiment_tracker import FINISH_TIMEOUT, ExperimentTracker
from callbacks.trackers.mlflow_run import fail_fast, open_run
from engine.io.sqlite_url import sqlite_url
from engine.lightning_internals.loggers import NullExperiment, flatten_config

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

log = logging.getLogger("lockstep")

_MAX_METRICS, _MAX_PARAMS = 1000, 100
"""Metrics and parameters that MLflow accepts in a request."""
_MAX_VALUE = 500
"""Characters of a parameter's value that every server accepts."""


class _Image(NamedTuple):
    name: str
    pixels: NDArray[np.uint8]  # [height, width, 3]
    step: int
    time: int  # milliseconds since 1970


@dataclass(frozen=True)
class MLflowSettings:
    """Settings of MLflow, which records beside TensorBoard.

    Args:
        experiment: MLflow experiment of the run; null turns MLflow off.
        tracking_uri: server (https://...) or database (sqlite:///FILE); null: the variable MLFLOW_TRACKING_URI, or
            else the file runs/mlflow.db, which needs no server and has all runs. Set passwords in
            MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN.
        name: name of the run in MLflow; null: the name of its folder.
    """

    experiment: str | None = None
    tracking_uri: str | None = None
    name: str | None = None


class MLflow(ExperimentTracker):
    """Sends metrics from a background thread and keeps one MLflow run for all starts of a run.

    It does not extend Lightning's MLFlowLogger, which waits for the server at each metric, drops the `@` of `HR@10`
    and starts a new run each time.

    Args:
        settings: settings with an experiment.
        folder: folder of the run.
        config: config of the run, recorded as MLflow's parameters. Values that a later start changes are recorded as
            tags `later.KEY`, because MLflow's parameters cannot change.

    Raises:
        ValueError: the address contains a password.
    """

    PROGRAM, KEY, ENABLED_BY = "MLflow", "mlflow", "experiment"

    def __init__(self, settings: MLflowSettings, folder: Path, config: Mapping[str, Any]) -> None:
        super().__init__()
        assert settings.experiment is not None, "MLflow is off without an experiment"
        self._experiment = settings.experiment
        self.settings, self.folder, self.run_config = settings, folder, config
        self._configured_uri = settings.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        self.uri = self._configured_uri or sqlite_url(folder.parent.resolve() / "mlflow.db")
        if urlsplit(self.uri).password:
            option = "mlflow.tracking_uri contains a password, which config.yaml would store"
            variable = "MLFLOW_TRACKING_URI contains a password, which the log would show"
            raise ValueError(
                f"{option if settings.tracking_uri else variable}; set the variables MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD instead"
            )
        self._client: MlflowClient | None = None
        self._recorded: Mapping[str, str] = {}  # parameters of earlier starts
        self._run_id: str | None = None
        self._sender: BackgroundSender[list[Metric] | _Image | str] | None = None

    @property
    @override
    def name(self) -> str:
        return self._experiment

    @property
    @override
    def version(self) -> str | None:
        return self._run_id

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """MLflow client, for recording more in the run with the id `version`."""
        return NullExperiment() if self._client is None or self._ended else self._client

    def _open_run(self, run_id: str | None) -> str:
        # MLflow's default for files of a run is a folder in the working directory.
        artifacts = None if self._configured_uri else self.folder.parent / "mlflow-files"
        name = self.settings.name or self.folder.name
        self._client, run = open_run(self.uri, run_id, self._experiment, name, artifacts)
        self._recorded, self._run_id = run.data.params, run.info.run_id
        return run.info.run_id

    def _log_config(self) -> None:
        # Later requests run in the sender's thread, where MLflow may retry as long as it likes.
        with fail_fast():
            self._send_config()
        self._sender = BackgroundSender(self._send, self._stop_recording)
        log.info("MLflow: experiment %s, run %s in %s", self._experiment, self._run_id, self.uri)

    @property
    def _client_and_run_id(self) -> tuple["MlflowClient", str]:
        """MLflow's client and the id of the run, once `_open_run` has opened it."""
        assert self._client is not None and self._run_id is not None, "_open_run comes first"
        return self._client, self._run_id

    def _send_config(self) -> None:
        from mlflow.entities import Param, RunTag

        (client, run_id), recorded = self._client_and_run_id, self._recorded
        flat = {_key(key): str(value)[:_MAX_VALUE] for key, value in flatten_config(dict(self.run_config), ".").items()}
        new = [Param(key, value) for key, value in flat.items() if key not in recorded]
        changed = [RunTag(f"later.{key}", value) for key, value in flat.items() if recorded.get(key, value) != value]
        for chunk in _chunks(new, _MAX_PARAMS):
            # Only new keys are sent: MLflow refuses a second value of a parameter.
            client.log_batch(run_id, params=chunk)
        for chunk in _chunks(changed, _MAX_PARAMS):
            client.log_batch(run_id, tags=chunk)

    def _remedy(self, error: Exception) -> str | None:
        return f"The address is {self.uri}; change it with --mlflow.tracking_uri" if self._configured_uri else None

    def _log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)  # milliseconds since 1970
        self._queue([Metric(_key(key), float(value), now, step) for key, value in metrics.items()])

    def _log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        self._queue(_Image(_key(name), image, step, int(time.time() * 1000)))

    def _queue(self, item: "list[Metric] | _Image | str") -> None:
        assert self._sender is not None, "the run is open"
        self._sender.put(item)

    def _send(self, items: "list[list[Metric] | _Image | str]") -> None:
        """Send metrics, images and the final status. The sender's thread calls this method."""
        client, run_id = self._client_and_run_id
        # All waiting metrics in few requests; images and the final status follow one by one.
        metrics = [metric for item in items if isinstance(item, list) for metric in item]
        for chunk in _chunks(metrics, _MAX_METRICS):
            client.log_batch(run_id, metrics=chunk)
        for item in items:
            if isinstance(item, _Image) and self._accepts_images:
                self._send_image(item)
        for item in items:
            if isinstance(item, str):
                client.set_terminated(run_id, item)

    def _send_image(self, image: _Image) -> None:
        client, run_id = self._client_and_run_id
        try:
            client.log_image(
                run_id, image.pixels, key=image.name, step=image.step, timestamp=image.time, synchronous=True
            )
        except Exception as error:  # some servers store metrics but no files
            self._stop_images(error)

    def _close_run(self, status: str) -> None:
        if self._sender is None:
            return
        # Queued behind the last metrics, as a run that has ended takes no more.
        self._sender.put("FINISHED" if status == "success" else "FAILED")
        if not self._sender.close(FINISH_TIMEOUT):
            raise TimeoutError(f"{self.uri} did not accept the last metrics within {FINISH_TIMEOUT:.0f} s")
        self._sender = None


def _key(name: str) -> str:
    """Return the name with the characters that MLflow accepts, as in the Prometheus names: HR@10 is HR_at_10."""
    return re.sub(r"[^\w/. -]", "_", name.replace("@", "_at_"))[:250]


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
