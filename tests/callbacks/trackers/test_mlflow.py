"""Tests MLflow with its real client and a database file, without a network or an account."""

import os
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest
import yaml
from mlflow import MlflowClient

from callbacks.trackers import mlflow as mlflow_tracker
from callbacks.trackers.mlflow import MLflow, MLflowSettings
from tests.conftest import REPOSITORY, TINY
from tests.support.outputs.mlflow_runs import expected_metrics, mlflow_metrics, mlflow_runs

OVERLAY = ["--config", str(REPOSITORY / "configs/overlays/mlflow.yaml")]


@pytest.mark.slow
def test_all_starts_of_a_run_are_one_tracker_run(lockstep, tmp_path):
    options = [*TINY, *OVERLAY, "--mlflow.experiment", "shops", "--trainer.val_check_interval", "2"]
    run = lockstep("fit", *options, "--trainer.max_steps", "3", name="a")
    assert list(run.folder.glob("events.*")), "TensorBoard stays"
    lockstep("fit", *options, "--trainer.max_steps", "5", "--ckpt_path", "last", name="a")
    lockstep("test", name="a")
    client, (mlflow_run,) = mlflow_runs(tmp_path / "runs", "shops")
    assert mlflow_run.info.run_id == (run.folder / "mlflow/run-id").read_text().strip()
    assert (mlflow_run.info.run_name, mlflow_run.info.status) == ("a", "FINISHED")
    expected = expected_metrics(run.folder)
    assert {"train/loss", "val/hr_at_10", "test/hr_at_10"} <= {key for key, step in expected}
    assert mlflow_metrics(client, mlflow_run) == expected
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert mlflow_run.data.params["model.class_path"] == config["model"]["class_path"]
    assert (mlflow_run.data.params["trainer.max_steps"], mlflow_run.data.tags["later.trainer.max_steps"]) == ("3", "5")
    assert not (tmp_path / "mlruns").exists()
    assert not (tmp_path / "mlartifacts").exists()


def test_a_refused_start_creates_no_tracker_run(lockstep, tmp_path):
    with pytest.raises(ValueError, match="micro_batch_size"):
        lockstep("fit", *TINY, *OVERLAY, "--data.init_args.micro_batch_size", "3", name="a")
    assert not (tmp_path / "runs/mlflow.db").exists()
    assert not (tmp_path / "runs/a/mlflow").exists()


def test_a_name_without_an_experiment_logs_a_warning(lockstep, messages):
    lockstep("fit", *TINY, "--mlflow.name", "mine", "--trainer.max_steps", "1", name="a")
    assert [line for line in messages if "mlflow.name has no effect" in line and "--mlflow.experiment" in line]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """An empty database, which takes MLflow seconds to create."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").create_experiment("shops")
    return file.read_bytes()


@pytest.fixture
def logger(tmp_path, monkeypatch, database):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/mlflow.db").write_bytes(database)
    created = []

    def make(config=None, **settings):
        config = {"a": 1} if config is None else config
        created.append(MLflow(MLflowSettings("shops", **settings), tmp_path / "runs/a", config))
        return created[-1]

    yield make
    for tracker in created:
        tracker.finalize("failed")


def test_a_long_config_with_unusual_keys_is_recorded_completely(logger, tmp_path):
    tracker = logger({"layers": {f"block {n} (wide)": n for n in range(150)}, "prompt": "x" * 10_000})
    tracker.begin()
    tracker.finalize("failed")
    _, (mlflow_run,) = mlflow_runs(tmp_path / "runs", "shops")
    assert len(mlflow_run.data.params) == 151
    assert mlflow_run.data.params["layers.block 149 _wide_"] == "149"
    assert mlflow_run.info.status == "FAILED"


def test_the_database_is_beside_the_runs_of_a_path_with_a_question_mark(tmp_path, monkeypatch, database):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    runs = tmp_path / "what?"
    runs.mkdir()
    monkeypatch.chdir(tmp_path)
    (runs / "mlflow.db").write_bytes(database)
    tracker = MLflow(MLflowSettings("shops"), runs / "a", {"a": 1})
    tracker.log_metrics({"train/loss": 1.0}, 1)
    tracker.finalize("success")
    with closing(sqlite3.connect(runs / "mlflow.db")) as connection:
        assert connection.execute("SELECT name, status FROM runs").fetchall() == [("a", "FINISHED")]
    assert (runs / "mlflow.db.lock").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("file")] == []
    assert [path.name for path in tmp_path.iterdir()] == ["what?"]


def test_metrics_beyond_mlflows_limit_are_sent_in_several_requests(logger, tmp_path):
    tracker = logger()
    tracker.log_metrics({f"train/metric {n}": n for n in range(2500)}, 1)
    tracker.finalize("success")
    _, (mlflow_run,) = mlflow_runs(tmp_path / "runs", "shops")
    assert len(mlflow_run.data.metrics) == 2500


def test_a_corrupt_database_ends_the_tracker_and_not_the_run(logger, logged_warnings, tmp_path):
    tracker = logger()
    tracker.begin()
    (tmp_path / "runs/mlflow.db").write_bytes(b"torn" * 300_000)
    tracker.log_metrics({"train/loss": 1.0}, 1)
    tracker._sender._thread.join(30)
    for step in (2, 3):
        tracker.log_metrics({"train/loss": 1.0}, step)
    tracker.finalize("success")
    (warning,) = logged_warnings
    assert "MLflow stopped recording" in warning
    assert "metrics.jsonl" in warning
    assert "database" in warning


def test_training_does_not_wait_for_a_server_that_hangs(logger, logged_warnings, monkeypatch):
    tracker, answers = logger(), threading.Event()
    tracker.begin()
    monkeypatch.setattr(mlflow_tracker, "FINISH_TIMEOUT", 0.05)
    monkeypatch.setattr(tracker._client, "log_batch", lambda *args, **kwargs: answers.wait(60))
    for step in range(100):
        tracker.log_metrics({"train/loss": 1.0}, step)
    tracker.finalize("success")
    (warning,) = logged_warnings
    assert "did not accept the last metrics" in warning
    answers.set()


@pytest.fixture
def no_server():
    """An address without a server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_new_run_is_refused_without_its_server(logger, no_server, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=f"MLflow cannot start a run: .*{no_server}.*--mlflow.tracking_uri"):
        logger(tracking_uri=no_server).begin()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", no_server)
    with pytest.raises(ValueError, match=no_server):
        logger().begin()
    assert not (tmp_path / "runs/a").exists()


def test_a_resumed_run_continues_without_its_server(logger, no_server, logged_warnings):
    first = logger()
    first.begin()
    second = logger(tracking_uri=no_server)
    second.begin()
    second.log_metrics({"train/loss": 1.0}, 1)
    (warning,) = logged_warnings
    assert "MLflow cannot start a run" in warning
    assert "training continues without it" in warning


def test_a_run_that_began_without_a_tracker_is_not_refused(logger, no_server, logged_warnings, tmp_path):
    """The server may be down when the launcher restarts the run."""
    (tmp_path / "runs/a").mkdir()
    (tmp_path / "runs/a/config.yaml").write_text("a: 1\n")
    logger(tracking_uri=no_server).begin()
    (warning,) = logged_warnings
    assert "MLflow cannot start a run" in warning
    assert "training continues without it" in warning


def test_a_tracker_run_whose_start_failed_is_continued(logger, monkeypatch, logged_warnings, tmp_path):
    def lost(*args, **kwargs):
        raise OSError("connection lost")

    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "log_batch", lost)
        first = logger()
        first.begin()
    (warning,) = logged_warnings
    assert "connection lost" in warning
    assert first.version
    second = logger()
    second.begin()
    assert second.version == first.version
    _, (mlflow_run,) = mlflow_runs(tmp_path / "runs", "shops")
    assert mlflow_run.data.params == {"a": "1"}


_BEGIN = """
import os, pathlib, sys, time
from mlflow import MlflowClient
from callbacks.trackers.mlflow import MLflow, MLflowSettings
runs, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
for name in names:
    if not os.fork():
        tracker = MLflow(MLflowSettings("shops"), runs / name, {"a": 1})
        (runs / f"{name}.ready").touch()
        while len(list(runs.glob("*.ready"))) < len(names):
            time.sleep(0.001)
        tracker.begin()
        tracker.finalize("success")
        sys.exit()
sys.exit(any(os.wait()[1] for name in names))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, so that mlflow is imported once")
def test_runs_that_start_at_the_same_time_all_have_a_tracker_run(tmp_path):
    """A run creates its tables and the experiment in a folder without a database."""
    runs, names = tmp_path / "runs", ["a", "b", "c"]
    runs.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    command = [sys.executable, "-c", _BEGIN, runs, *names]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    _, runs_found = mlflow_runs(runs, "shops")
    assert sorted(mlflow_run.info.run_name for mlflow_run in runs_found) == names, done.stderr
    assert {mlflow_run.info.status for mlflow_run in runs_found} == {"FINISHED"}


def test_a_full_disk_at_the_start_does_not_stop_the_run(logger, logged_warnings, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("callbacks.trackers.experiment_tracker.write_atomically", full)
    tracker = logger()
    tracker.begin()
    tracker.log_metrics({"train/loss": 1.0}, 1)
    (warning,) = logged_warnings
    assert "No space left on device" in warning


def test_an_id_that_cannot_be_read_ends_the_tracker_and_not_the_run(logger, logged_warnings, tmp_path):
    first = logger()
    first.begin()
    (tmp_path / "runs/a/mlflow/run-id").write_bytes(b"\xff\xfe")
    second = logger()
    second.begin()
    second.log_metrics({"train/loss": 1.0}, 1)
    (warning,) = logged_warnings
    assert "cannot start a run ('ascii' codec can't decode" in warning


def test_a_deleted_tracker_run_is_replaced(logger, tmp_path):
    first = logger()
    first.begin()
    client, (mlflow_run,) = mlflow_runs(tmp_path / "runs", "shops")
    client.delete_run(mlflow_run.info.run_id)
    second = logger()
    second.begin()
    assert second.version != first.version
    assert (tmp_path / "runs/a/mlflow/run-id").read_text().strip() == second.version


def test_an_address_with_a_password_is_refused(logger, monkeypatch):
    with pytest.raises(ValueError, match="MLFLOW_TRACKING_PASSWORD") as refused:
        logger(tracking_uri="https://me:secret@mlflow.example.org")
    assert "secret" not in str(refused.value)
    assert "mlflow.tracking_uri" in str(refused.value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example.org")
    with pytest.raises(ValueError, match="MLFLOW_TRACKING_URI contains a password") as refused:
        logger()
    assert "secret" not in str(refused.value)
