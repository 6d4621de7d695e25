"""Tests W&B with the real package, offline, without a network or an account."""

import logging

import psutil
import pytest
import yaml

from callbacks.trackers import experiment_tracker
from callbacks.trackers.wandb import WandbSettings, WeightsAndBiases
from tests.conftest import REPOSITORY, TINY
from tests.support.outputs.wandb_record import records_of

OVERLAY = ["--config", str(REPOSITORY / "configs/overlays/wandb.yaml")]


def services():
    """Return W&B's processes that this process has started."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "wandb" in child.name() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_all_starts_of_a_run_are_one_tracker_run(lockstep, tmp_path):
    options = [*TINY, *OVERLAY, "--wandb.project", "manuals"]
    run = lockstep("fit", *options, "--trainer.max_steps", "3", name="a")
    assert services() == []
    assert list(run.folder.glob("events.*")), "TensorBoard stays"
    other = ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", str(tmp_path / "csv")]
    lockstep("fit", *options, "--trainer.max_steps", "5", "--ckpt_path", "last", *other, name="a")
    assert services() == [], "other loggers stay, too"
    assert list(tmp_path.glob("csv/**/metrics.csv")), "other loggers stay, too"
    first, second = records_of(run.folder)
    assert (first.project, first.name) == ("manuals", "a") == (second.project, second.name)
    assert first.run_id == second.run_id == (run.folder / "wandb/run-id").read_text().strip()
    assert {**first.series("train/loss"), **second.series("train/loss")} == pytest.approx(run.series("train/loss"))
    assert sorted(second.series("train/loss")) == [4, 5]
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert first.config["model"] == config["model"]
    assert first.config["wandb"]["project"] == "manuals"


def test_a_refused_start_creates_no_tracker_run(lockstep, tmp_path):
    with pytest.raises(ValueError, match="micro_batch_size"):
        lockstep("fit", *TINY, *OVERLAY, "--data.init_args.micro_batch_size", "3", name="a")
    assert list(tmp_path.glob("runs/a/wandb*")) == []
    assert services() == []


@pytest.fixture
def logger(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # ignores the login of the user
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    created = []

    def make(**settings):
        created.append(WeightsAndBiases(WandbSettings("manuals", **settings), tmp_path, {"a": 1}))
        return created[-1]

    yield make
    for tracker in created:
        tracker.finalize("failed")


def test_an_error_during_training_ends_the_tracker_and_not_the_run(logger, messages, caplog):
    tracker = logger()
    tracker.log_metrics({"train/loss": 1.0}, 1)
    assert len(services()) >= 1
    with caplog.at_level(logging.INFO, "lockstep"):
        tracker._experiment.finish()
        tracker.log_metrics({"train/loss": 1.0}, 2)
        tracker.log_metrics({"train/loss": 1.0}, 3)
    warnings = [line for line in messages if "W&B stopped recording" in line]
    assert len(warnings) == 1
    assert "metrics.jsonl" in warnings[0]
    tracker.finalize("success")
    assert services() == []


def test_a_new_run_online_without_an_account_is_refused(logger):
    with pytest.raises(ValueError, match="W&B cannot start a run: .*wandb login.*--wandb.mode offline"):
        logger(mode="online").begin()


def test_a_resumed_run_continues_without_its_account(logger, logged_warnings):
    first = logger()
    first.begin()
    first.finalize("success")
    second = logger(mode="online")
    second.begin()
    second.log_metrics({"train/loss": 1.0}, 1)
    (warning,) = logged_warnings
    assert "W&B cannot start a run" in warning
    assert "continues without it" in warning


@pytest.mark.parametrize("fails", ["init", "Settings"])
def test_another_error_at_the_start_does_not_stop_the_run(logger, monkeypatch, messages, caplog, fails):
    def broken(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(f"wandb.{fails}", broken)
    tracker = logger()
    with caplog.at_level(logging.INFO, "lockstep"):
        tracker.log_metrics({"train/loss": 1.0}, 1)
        tracker.log_metrics({"train/loss": 1.0}, 2)
    (warning,) = [line for line in messages if "W&B" in line]
    assert "no space left on device" in warning
    assert "continues without it" in warning
    tracker.finalize("success")
    assert services() == []


def test_a_name_without_a_project_logs_a_warning(lockstep, messages):
    run = lockstep("fit", *TINY, "--wandb.name", "mine", "--trainer.max_steps", "1", name="a")
    assert [line for line in messages if "wandb.name has no effect" in line and "--wandb.project" in line]
    assert not (run.folder / "wandb").exists()


def test_finish_waits_for_the_network_up_to_the_timeout(logger):
    tracker = logger()
    tracker.begin()
    assert tracker._experiment.settings.finish_timeout == experiment_tracker.FINISH_TIMEOUT
