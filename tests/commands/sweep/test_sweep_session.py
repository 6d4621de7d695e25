"""Tests the settings that a study was begun with, and its last lines."""

import shutil
import signal
import sqlite3
from contextlib import closing

import pytest

from commands.report.study_summary import StudySummary
from commands.sweep.settings_reader import read_sweep
from commands.sweep.sweep_arguments import SweepCommand
from commands.sweep.sweep_session import checkpoint_remark, open_study, report_stop
from commands.sweep.worker import SweepStopped
from engine.io.yaml_file import YamlFileError
from tests.commands.report.recorded import Recorded

RATE = "  rate: {type: float, low: 0.1, high: 1, log: true}\n"

SWEEP = f"""\
metric: val/loss
direction: minimize
trials: 3
seed: 1
parameters:
{RATE}  width: {{type: int, low: 8, high: 16, step: 4}}
"""


@pytest.mark.parametrize(
    "before, after, message",
    [
        (
            "high: 16",
            "high: 32",
            "s.yaml:7: parameters.width: found {type: int, low: 8, high: 32, step: 4}, expected {type: int, low: 8, "
            "high: 16, step: 4}",
        ),
        ("seed: 1", "seed: 7", "s.yaml:4: seed: found 7, expected 1"),
        (RATE, "", "s.yaml:5: parameters.rate: found absent, expected"),
    ],
)
def test_a_changed_key_is_named_with_its_line_and_both_values(tmp_path, before, after, message):
    sweep = tmp_path / "s.yaml"
    command = SweepCommand(sweep, tmp_path, ["--config", "x.yaml"])
    sweep.write_text(SWEEP)
    open_study(command, read_sweep(sweep))
    sweep.write_text(SWEEP.replace("trials: 3", "trials: 9"))
    open_study(command, read_sweep(sweep))
    sweep.write_text(SWEEP.replace(before, after))
    with pytest.raises(YamlFileError) as error:
        open_study(command, read_sweep(sweep))
    assert (
        str(error.value).replace(f"{tmp_path} is a study with other settings: ", "").startswith(f"{tmp_path}/{message}")
    )


def test_a_config_is_the_same_by_any_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SWEEP)
    (tmp_path / "x.yaml").write_text("a: 1\n")
    settings = read_sweep(tmp_path / "s.yaml")
    for path in ("x.yaml", "./x.yaml", str(tmp_path / "x.yaml")):
        open_study(SweepCommand(tmp_path / "s.yaml", tmp_path, ["--config", path]), settings)
    (tmp_path / "x.yaml").write_text("a: 2\n")
    with pytest.raises(ValueError, match=r"other settings: content of x\.yaml: found"):
        open_study(SweepCommand(tmp_path / "s.yaml", tmp_path, ["--config", "x.yaml"]), settings)


@pytest.mark.parametrize("name", ["a?b", "{a}", "100% #"])
def test_the_database_is_in_the_folder_of_the_study(tmp_path, name):
    (tmp_path / "s.yaml").write_text(SWEEP)
    folder = tmp_path / name
    folder.mkdir()
    open_study(SweepCommand(tmp_path / "s.yaml", folder, ["--config", "x.yaml"]), read_sweep(tmp_path / "s.yaml"))
    assert (folder / "study.db").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"s.yaml", name}


def _cut(database):
    database.write_bytes(database.read_bytes()[:20_000])


def _of_another_version(database):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9'")
        connection.commit()


def _without_settings(database):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE study_user_attributes SET value_json = '5'")
        connection.commit()


DAMAGES = {
    "file is not a database": lambda database: database.write_bytes(b"garbage" * 99),
    "database disk image is malformed": _cut,
    "is no longer compatible with the table schema": _of_another_version,
    "its settings are 5": _without_settings,
}


def test_a_corrupt_database_is_named_with_its_reason(tmp_path):
    (tmp_path / "s.yaml").write_text(SWEEP)
    settings = read_sweep(tmp_path / "s.yaml")
    open_study(SweepCommand(tmp_path / "s.yaml", tmp_path, ["--config", "x.yaml"]), settings)
    for number, (reason, damage) in enumerate(DAMAGES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copy(tmp_path / "study.db", folder)
        damage(folder / "study.db")
        with pytest.raises(ValueError, match=f"study.db: found no study of a sweep: .*{reason}.*\\nRestore the file"):
            open_study(SweepCommand(tmp_path / "s.yaml", folder, ["--config", "x.yaml"]), settings)


def test_a_database_that_cannot_be_opened_may_be_whole(tmp_path):
    (tmp_path / "s.yaml").write_text(SWEEP)
    (tmp_path / "study.db").mkdir()
    with pytest.raises(ValueError, match="study.db cannot be read: unable to open database file\nIs another program"):
        open_study(SweepCommand(tmp_path / "s.yaml", tmp_path, ["--config", "x.yaml"]), read_sweep(tmp_path / "s.yaml"))


def test_a_best_checkpoint_of_another_metric_is_reported(tmp_path):
    run = Recorded(tmp_path / "a").folder  # its best_checkpoint.monitor is val/ndcg@10
    summary = StudySummary("val/loss", "minimize", [], [], "")
    assert checkpoint_remark(run, summary).startswith("its best checkpoint is selected by val/ndcg@10")
    assert checkpoint_remark(run, summary._replace(metric="val/ndcg@10")) == ""
    shutil.rmtree(run)
    assert checkpoint_remark(run, summary) == ""


@pytest.mark.parametrize(
    "number, in_training, code, requeued",
    [(signal.SIGTERM, False, 143, 1), (signal.SIGTERM, True, 143, 0), (signal.SIGINT, False, 130, 0)],
)
def test_a_worker_without_a_training_requeues_its_job(monkeypatch, capsys, number, in_training, code, requeued):
    """A training requeues it by itself."""
    asked = []
    monkeypatch.setattr("callbacks.health.slurm_requeue.requeue_job", asked.append)
    assert report_stop(SweepStopped(number, in_training)) == code
    assert len(asked) == requeued
    assert "the same command continues the study" in capsys.readouterr().err
