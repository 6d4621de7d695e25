"""MLflow's record of a run, beside TensorBoard's."""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from filelock import FileLock, Timeout
from lightning.fabric.loggers.logger import _DummyExperiment, rank_zero_experiment
from lightning.fabric.utilities.logger import _flatten_dict
from numpy.typing import NDArray

from callbacks.outbox import Outbox
from callbacks.tracker import FINISH_PATIENCE, Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Metric, Run

log = logging.getLogger("lockstep")

_FIGURES_AT_ONCE, _PARAMETERS_AT_ONCE = 1000, 100  # MLflow takes no more
_LONGEST = 500
"""Characters of a parameter's value that every server takes."""

_QUIET = {"MLFLOW_CONFIGURE_LOGGING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
_AT_THE_START = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""So that an address without a server is told soon; later MLflow has its own patience, four minutes."""
_TABLES = 60.0
"""Seconds in which another run may make the database's tables."""
_STATUS = {"success": "FINISHED"}
_INSTALL = "pip install -e '.[mlflow]'"


class _Picture(NamedTuple):
    name: str
    pixels: NDArray[np.uint8]  # [height, width, 3]
    step: int
    time: int  # milliseconds since 1970


@dataclass(frozen=True)
class MLflowSettings:
    """MLflow, beside TensorBoard.

    Args:
        experiment: the MLflow experiment in which the run is recorded; null: MLflow is not used.
        tracking_uri: where: a server (https://...) or a database (sqlite:///FILE); null: what the variable MLFLOW_TRACKING_URI says, else the file runs/mlflow.db, which needs no server and holds all runs. Passwords belong into MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN.
        name: what the run is called there; null: the name of its folder.
    """  # noqa: E501

    experiment: str | None = None
    tracking_uri: str | None = None
    name: str | None = None


class MLflow(Tracker):
    """Sends figures from a thread of its own; one MLflow run for all starts of a run.

    Lightning's logger waits for the server at each figure, drops the `@` of `HR@10`, and begins a new run each time.

    Args:
        settings: with an experiment.
        folder: of the run.
        config: of the run: MLflow's parameters. What a later start has changed of them are its tags `later.KEY`.

    Raises:
        ValueError: mlflow is not installed, or the address has a password in it.
    """

    PROGRAM, KEY = "MLflow", "mlflow"

    def __init__(self, settings: MLflowSettings, folder: Path, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.settings, self.folder, self.run_config = settings, folder, config
        self._given = settings.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        self.uri = self._given or f"sqlite:///{folder.parent.resolve()}/mlflow.db"
        if urlsplit(self.uri).password:
            given = "mlflow.tracking_uri has a password in it, which config.yaml would keep"
            variable = "the variable MLFLOW_TRACKING_URI has a password in it, which the log would show"
            raise ValueError(
                f"{given if settings.tracking_uri else variable}: put it into the variables MLFLOW_TRACKING_USERNAME "
                "and MLFLOW_TRACKING_PASSWORD"
            )
        if find_spec("mlflow") is None:
            raise ValueError(f"mlflow.experiment is {settings.experiment}, but mlflow is not installed: {_INSTALL}")
        self._client: MlflowClient | None = None
        self._told: Mapping[str, str] = {}
        self._run_id: str | None = None
        self._outbox: Outbox[list[Metric] | _Picture | str] | None = None

    @property
    def name(self) -> str | None:
        return self.settings.experiment

    @property
    def version(self) -> str | None:
        return self._run_id

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """MLflow's client, for what else is to be added to the run `version`."""
        return _DummyExperiment() if self._client is None or self._ended else self._client

    def _open(self, run_id: str | None) -> str:
        with _variables(_QUIET), _variables(_AT_THE_START):
            from mlflow import MlflowClient

            with _alone(self.uri):
                client = MlflowClient(self.uri)
                run = self._earlier(client, run_id) or self._new(client)
        self._client, self._run_id, self._told = client, run.info.run_id, run.data.params
        return self._run_id

    def _earlier(self, client: "MlflowClient", run_id: str | None) -> "Run | None":
        """The run of this id; None where it is not, as it was deleted or is in another place."""
        from mlflow.exceptions import MlflowException

        if run_id is None:
            return None
        try:
            run = client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        if run.info.lifecycle_stage == "deleted":
            return None
        client.update_run(run_id, status="RUNNING")
        return run

    def _new(self, client: "MlflowClient") -> "Run":
        from mlflow.tracking.context.registry import resolve_tags

        experiment = client.get_experiment_by_name(self.settings.experiment) or self._new_experiment(client)
        name = self.settings.name or self.folder.name
        return client.create_run(experiment.experiment_id, run_name=name, tags=resolve_tags({}))

    def _new_experiment(self, client: "MlflowClient") -> "Experiment":
        from mlflow.exceptions import MlflowException

        # Files that are added to a run would else lie where train.py was started.
        files = None if self._given else (self.folder.parent / "mlflow-files").resolve().as_uri()
        try:
            client.create_experiment(self.settings.experiment, artifact_location=files)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another run has made it meanwhile
                raise
        return client.get_experiment_by_name(self.settings.experiment)

    def _tell_config(self) -> None:
        with _variables(_AT_THE_START):
            self._send_config(self._client, self._told)
        self._outbox = Outbox(self._send, self._lose)
        log.info("MLflow: experiment %s, run %s in %s", self.settings.experiment, self._run_id, self.uri)

    def _send_config(self, client: "MlflowClient", told: Mapping[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        flat = {_key(key): str(value)[:_LONGEST] for key, value in _flatten_dict(dict(self.run_config), ".").items()}
        new = [Param(key, value) for key, value in flat.items() if key not in told]
        changed = [RunTag(f"later.{key}", value) for key, value in flat.items() if told.get(key, value) != value]
        for some in _parts(new, _PARAMETERS_AT_ONCE):
            client.log_batch(self._run_id, params=some)
        for some in _parts(changed, _PARAMETERS_AT_ONCE):
            client.log_batch(self._run_id, tags=some)

    def _remedy(self, error: Exception) -> str | None:
        if isinstance(error, ModuleNotFoundError):
            return _INSTALL
        return f"Its address is {self.uri}; --mlflow.tracking_uri says another" if self._given else None

    def _record(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._outbox.put([Metric(_key(key), float(value), now, step) for key, value in metrics.items()])

    def _record_picture(self, name: str, picture: NDArray[np.uint8], step: int) -> None:
        self._outbox.put(_Picture(_key(name), picture, step, int(time.time() * 1000)))

    def _send(self, letters: "list[list[Metric] | _Picture | str]") -> None:
        figures = [figure for letter in letters if isinstance(letter, list) for figure in letter]
        for some in _parts(figures, _FIGURES_AT_ONCE):
            self._client.log_batch(self._run_id, metrics=some)
        for picture in letters:
            if isinstance(picture, _Picture) and self._takes_pictures:
                self._send_picture(picture)
        for status in letters:
            if isinstance(status, str):
                self._client.set_terminated(self._run_id, status)

    def _send_picture(self, picture: _Picture) -> None:
        try:
            self._client.log_image(
                self._run_id, picture.pixels, key=picture.name, step=picture.step, timestamp=picture.time,
                synchronous=True,
            )  # fmt: skip
        except Exception as error:  # a server may keep figures and no files
            self._refuse_pictures(error)

    def _close(self, status: str) -> None:
        if self._outbox is None:
            return
        self._outbox.put(_STATUS.get(status, "FAILED"))
        if not self._outbox.close(FINISH_PATIENCE):
            raise TimeoutError(f"{self.uri} did not take the last figures within {FINISH_PATIENCE:.0f} s")
        self._outbox = None


def _key(name: str) -> str:
    """As MLflow has it, and like the Prometheus endpoint's: HR@10 is HR_at_10."""
    return re.sub(r"[^\w/. -]", "_", name.replace("@", "_at_"))[:250]


def _parts(all_of_them: list[Any], size: int) -> Iterator[list[Any]]:
    for begin in range(0, len(all_of_them), size):
        yield all_of_them[begin : begin + size]


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Of several runs that begin at once one makes the tables of a database in a file; MLflow's creation is no
    transaction, and the others would find half of them.
    """
    from sqlalchemy.engine import make_url

    file = make_url(uri).database if uri.startswith("sqlite") else None
    with ExitStack() as locked:
        if file and file != ":memory:":
            try:
                locked.enter_context(FileLock(f"{file}.lock", timeout=_TABLES))
            except (Timeout, OSError, NotImplementedError) as error:  # a file system without locks is no reason
                log.debug("%s is not locked: %s", file, error)
        yield


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Those of them that nobody has set."""
    ours = {key: value for key, value in wanted.items() if key not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for key in ours:
            os.environ.pop(key, None)
