"""MLflow with its real client and a database in a file: no network, no account."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from callbacks import mlflow_record
from callbacks.mlflow_record import MLflow, MLflowSettings
from tests.conftest import REPOSITORY, TINY
from tests.mlflow_runs import figures_expected, mlflow_figures, mlflow_runs

OVERLAY = ["--config", str(REPOSITORY / "configs/overlays/mlflow.yaml")]


def test_one_record_for_all_starts_of_a_run(lockstep, tmp_path):
    options = [*TINY, *OVERLAY, "--mlflow.experiment", "shops", "--trainer.val_check_interval", "2"]
    run = lockstep("fit", *options, "--trainer.max_steps", "3", name="a")
    assert list(run.folder.glob("events.*")), "TensorBoard stays"
    lockstep("fit", *options, "--trainer.max_steps", "5", "--ckpt_path", "last", name="a")
    lockstep("test", name="a")
    client, (record,) = mlflow_runs(tmp_path / "runs", "shops")
    assert record.info.run_id == (run.folder / "mlflow/run-id").read_text().strip()
    assert (record.info.run_name, record.info.status) == ("a", "FINISHED")
    expected = figures_expected(run.folder)
    assert {"train/loss", "val/hr_at_10", "test/hr_at_10"} <= {key for key, step in expected}
    assert mlflow_figures(client, record) == expected
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert record.data.params["model.class_path"] == config["model"]["class_path"]
    assert (record.data.params["trainer.max_steps"], record.data.tags["later.trainer.max_steps"]) == ("3", "5")
    assert not (tmp_path / "mlruns").exists() and not (tmp_path / "mlartifacts").exists()


def test_a_start_that_is_refused_has_no_record(lockstep, tmp_path):
    with pytest.raises(ValueError, match="micro_batch_size"):
        lockstep("fit", *TINY, *OVERLAY, "--data.init_args.micro_batch_size", "3", name="a")
    assert not (tmp_path / "runs/mlflow.db").exists() and not (tmp_path / "runs/a/mlflow").exists()


def test_a_name_without_an_experiment_is_told(lockstep, said):
    lockstep("fit", *TINY, "--mlflow.name", "mine", "--trainer.max_steps", "1", name="a")
    assert [line for line in said if "mlflow.name has no effect" in line and "--mlflow.experiment" in line]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """An empty one: to make it takes MLflow seconds."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").create_experiment("shops")
    return file.read_bytes()


@pytest.fixture
def logger(tmp_path, monkeypatch, database):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/mlflow.db").write_bytes(database)
    made = []

    def make(config={"a": 1}, **settings):
        made.append(MLflow(MLflowSettings("shops", **settings), tmp_path / "runs/a", config))
        return made[-1]

    yield make
    for one in made:
        one.finalize("failed")


def test_a_long_config_with_odd_keys_is_recorded_whole(logger, tmp_path):
    one = logger({"layers": {f"block {n} (wide)": n for n in range(150)}, "prompt": "x" * 10_000})
    one.begin()
    one.finalize("failed")
    _, (record,) = mlflow_runs(tmp_path / "runs", "shops")
    assert len(record.data.params) == 151 and record.data.params["layers.block 149 _wide_"] == "149"
    assert record.info.status == "FAILED"


def test_more_figures_than_mlflow_takes_at_once(logger, tmp_path):
    one = logger()
    one.log_metrics({f"train/figure {n}": n for n in range(2500)}, 1)
    one.finalize("success")
    _, (record,) = mlflow_runs(tmp_path / "runs", "shops")
    assert len(record.data.metrics) == 2500


def test_a_database_that_breaks_ends_the_record_and_not_the_run(logger, said, tmp_path):
    one = logger()
    one.begin()
    (tmp_path / "runs/mlflow.db").write_bytes(b"torn" * 300_000)
    one.log_metrics({"train/loss": 1.0}, 1)
    one._outbox._thread.join(30)
    for step in (2, 3):
        one.log_metrics({"train/loss": 1.0}, step)
    one.finalize("success")
    (warning,) = [line for line in said if "WARNING" in line]
    assert "MLflow records no more of this run" in warning and "metrics.jsonl" in warning
    assert "database" in warning


def test_nobody_waits_for_a_server_that_stands_still(logger, said, monkeypatch):
    one, answers = logger(), threading.Event()
    one.begin()
    monkeypatch.setattr(mlflow_record, "FINISH_PATIENCE", 0.05)
    monkeypatch.setattr(one._client, "log_batch", lambda *args, **kwargs: answers.wait(60))
    for step in range(100):
        one.log_metrics({"train/loss": 1.0}, step)
    one.finalize("success")
    (warning,) = [line for line in said if "WARNING" in line]
    assert "did not take the last figures" in warning
    answers.set()


@pytest.fixture
def nobody():
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_new_run_is_refused_where_there_is_no_server(logger, nobody, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=f"MLflow does not begin a record: .*{nobody}.*--mlflow.tracking_uri"):
        logger(tracking_uri=nobody).begin()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", nobody)
    with pytest.raises(ValueError, match=nobody):
        logger().begin()
    assert not (tmp_path / "runs/a").exists()


def test_a_run_that_goes_on_does_without_its_server(logger, nobody, said):
    first = logger()
    first.begin()
    second = logger(tracking_uri=nobody)
    second.begin()
    second.log_metrics({"train/loss": 1.0}, 1)
    (warning,) = [line for line in said if "WARNING" in line]
    assert "MLflow does not begin a record" in warning and "this run goes on without it" in warning


def test_a_run_that_has_begun_without_a_record_is_not_refused(logger, nobody, said, tmp_path):
    """Nobody may be there when the launcher starts it again."""
    (tmp_path / "runs/a").mkdir()
    (tmp_path / "runs/a/config.yaml").write_text("a: 1\n")
    logger(tracking_uri=nobody).begin()
    (warning,) = [line for line in said if "WARNING" in line]
    assert "MLflow does not begin a record" in warning and "this run goes on without it" in warning


def test_a_record_whose_beginning_breaks_off_is_gone_on_with(logger, monkeypatch, said, tmp_path):
    def lost(*args, **kwargs):
        raise OSError("connection lost")

    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "log_batch", lost)
        first = logger()
        first.begin()
    (warning,) = [line for line in said if "WARNING" in line]
    assert "connection lost" in warning and first.version
    second = logger()
    second.begin()
    assert second.version == first.version
    _, (record,) = mlflow_runs(tmp_path / "runs", "shops")
    assert record.data.params == {"a": "1"}


_BEGINS = """
import pathlib, sys, time
from mlflow import MlflowClient
from callbacks.mlflow_record import MLflow, MLflowSettings
runs, name = pathlib.Path(sys.argv[1]), sys.argv[2]
one = MLflow(MLflowSettings("shops"), runs / name, {"a": 1})
(runs / f"{name}.ready").touch()
while not (runs / "go").exists():
    time.sleep(0.001)
one.begin()
one.finalize("success")
"""


def test_runs_that_begin_at_the_same_moment_all_have_a_record(tmp_path):
    """In a folder that has no database yet: one makes its tables and the experiment."""
    runs, names = tmp_path / "runs", ["a", "b", "c"]
    runs.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    started = [
        subprocess.Popen([sys.executable, "-c", _BEGINS, runs, name], env=environment, stderr=subprocess.PIPE)
        for name in names
    ]
    while len(list(runs.glob("*.ready"))) < len(names) and all(one.poll() is None for one in started):
        time.sleep(0.01)
    (runs / "go").touch()
    said = [one.communicate()[1].decode() for one in started]
    assert [one.returncode for one in started] == [0, 0, 0], said
    _, records = mlflow_runs(runs, "shops")
    assert sorted(record.info.run_name for record in records) == names, said
    assert {record.info.status for record in records} == {"FINISHED"}


def test_a_full_disk_at_the_beginning_does_not_stop_the_run(logger, said, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    one = logger()
    one.begin()
    one.log_metrics({"train/loss": 1.0}, 1)
    (warning,) = [line for line in said if "WARNING" in line]
    assert "No space left on device" in warning


def test_a_record_that_was_deleted_is_begun_anew(logger, tmp_path):
    first = logger()
    first.begin()
    client, (record,) = mlflow_runs(tmp_path / "runs", "shops")
    client.delete_run(record.info.run_id)
    second = logger()
    second.begin()
    assert second.version != first.version
    assert (tmp_path / "runs/a/mlflow/run-id").read_text().strip() == second.version


def test_a_password_does_not_get_into_the_config(logger, monkeypatch):
    with pytest.raises(ValueError, match="MLFLOW_TRACKING_PASSWORD") as refused:
        logger(tracking_uri="https://me:secret@mlflow.example.org")
    assert "secret" not in str(refused.value) and "mlflow.tracking_uri" in str(refused.value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example.org")
    with pytest.raises(ValueError, match="the variable MLFLOW_TRACKING_URI has a password in it") as refused:
        logger()
    assert "secret" not in str(refused.value)


def test_without_the_package(logger, monkeypatch):
    monkeypatch.setattr(mlflow_record, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"mlflow is not installed: pip install -e '\.\[mlflow\]'"):
        logger()
