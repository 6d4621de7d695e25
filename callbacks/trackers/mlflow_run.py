"""Opens a run at an MLflow server or database: finds it by its id, or creates it and its experiment."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from engine.io.sqlite_url import sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

log = logging.getLogger("lockstep")

# MLflow otherwise adds log handlers when it is imported, and sends usage data.
_QUIET = {"MLFLOW_CONFIGURE_LOGGING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
_FAIL_FAST = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
_LOCK_TIMEOUT = 60.0
"""Seconds to wait while another run creates the tables of the database."""


def open_run(
    uri: str, run_id: str | None, experiment: str, name: str, artifacts: Path | None
) -> tuple["MlflowClient", "Run"]:
    """Return a client and the run with this id, or a new run if it is deleted or unknown at this address.

    Args:
        uri: address of the server or database.
        run_id: id of the run that an earlier start created; None: create a run.
        experiment: name of the experiment, which is created if it does not exist.
        name: name of a new run.
        artifacts: folder for the files of a new experiment; None: the server's default.

    Raises:
        MlflowException: the server refuses, or cannot be reached.
    """
    with _set_unset_variables(_QUIET), fail_fast():
        from mlflow import MlflowClient

        with _lock_database(uri):
            client = MlflowClient(uri)
            return client, _find_run(client, run_id) or _create_run(client, experiment, name, artifacts)


@contextmanager
def fail_fast() -> Iterator[None]:
    """Make requests to an address without a server fail soon. MLflow's defaults retry for four minutes."""
    with _set_unset_variables(_FAIL_FAST):
        yield


def _find_run(client: "MlflowClient", run_id: str | None) -> "Run | None":
    from mlflow.exceptions import MlflowException

    if run_id is None:
        return None
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    # A user may have deleted the run in MLflow. It cannot be written to.
    if run.info.lifecycle_stage == "deleted":
        return None
    # The earlier start has ended the run.
    client.update_run(run_id, status="RUNNING")
    return run


def _create_run(client: "MlflowClient", experiment: str, name: str, artifacts: Path | None) -> "Run":
    from mlflow.tracking.context.registry import resolve_tags

    existing = client.get_experiment_by_name(experiment)
    experiment_id = _create_experiment(client, experiment, artifacts) if existing is None else existing.experiment_id
    # `resolve_tags` gives the tags that `mlflow.start_run` sets: user, source, commit.
    return client.create_run(experiment_id, run_name=name, tags=resolve_tags({}))


def _create_experiment(client: "MlflowClient", experiment: str, artifacts: Path | None) -> str:
    """Return the id of the experiment, which this run or a concurrent run creates."""
    from mlflow.exceptions import MlflowException

    try:
        location = None if artifacts is None else artifacts.resolve().as_uri()
        return client.create_experiment(experiment, artifact_location=location)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # created by a concurrent run
            raise
    created = client.get_experiment_by_name(experiment)
    if created is None:
        raise LookupError(f"experiment {experiment} was created and deleted by concurrent runs")
    return created.experiment_id


@contextmanager
def _lock_database(uri: str) -> Iterator[None]:
    """Lock a database file, so that only a single run creates its tables.

    MLflow does not create them in a transaction, so a concurrent run would find only some of them.
    """
    file = sqlite_file(uri)
    with ExitStack() as stack:
        if file:
            try:
                stack.enter_context(FileLock(f"{file}.lock", timeout=_LOCK_TIMEOUT))
            except (Timeout, OSError, NotImplementedError) as error:  # continue without a lock
                log.debug("%s is not locked: %s", file, error)
        yield


@contextmanager
def _set_unset_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables that are not set, and remove them on exit."""
    # A variable that the user has set keeps its value.
    added = {key: value for key, value in variables.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)
