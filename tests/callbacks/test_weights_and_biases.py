"""W&B with the real package, offline: no network, no account, nothing outside of the run's folder to look for."""

import logging

import psutil
import pytest
import yaml

from callbacks import tracker
from callbacks.weights_and_biases import WandbSettings, WeightsAndBiases
from tests.conftest import REPOSITORY, TINY
from tests.wandb_record import records_of

OVERLAY = ["--config", str(REPOSITORY / "configs/overlays/wandb.yaml")]


def services():
    """W&B's processes that this one has started."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "wandb" in child.name() and child.status() != psutil.STATUS_ZOMBIE]


def test_one_record_for_all_starts_of_a_run(lockstep, tmp_path):
    options = [*TINY, *OVERLAY, "--wandb.project", "manuals"]
    run = lockstep("fit", *options, "--trainer.max_steps", "3", name="a")
    assert services() == []
    assert list(run.folder.glob("events.*")), "TensorBoard stays"
    other = ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", str(tmp_path / "csv")]
    lockstep("fit", *options, "--trainer.max_steps", "5", "--ckpt_path", "last", *other, name="a")
    assert services() == [] and list(tmp_path.glob("csv/**/metrics.csv")), "other loggers stay, too"
    first, second = records_of(run.folder)
    assert (first.project, first.name) == ("manuals", "a") == (second.project, second.name)
    assert first.run_id == second.run_id == (run.folder / "wandb/run-id").read_text().strip()
    assert {**first.series("train/loss"), **second.series("train/loss")} == pytest.approx(run.series("train/loss"))
    assert sorted(second.series("train/loss")) == [4, 5]
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert first.config["model"] == config["model"] and first.config["wandb"]["project"] == "manuals"


def test_a_start_that_is_refused_has_no_record(lockstep, tmp_path):
    with pytest.raises(ValueError, match="micro_batch_size"):
        lockstep("fit", *TINY, *OVERLAY, "--data.init_args.micro_batch_size", "3", name="a")
    assert list(tmp_path.glob("runs/a/wandb*")) == [] and services() == []


@pytest.fixture
def logger(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # whoever has logged in
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    made = []

    def make(**settings):
        made.append(WeightsAndBiases(WandbSettings("manuals", **settings), tmp_path, {"a": 1}))
        return made[-1]

    yield make
    for one in made:
        one.finalize("failed")


def test_an_error_in_the_middle_ends_the_record_and_not_the_run(logger, said, caplog):
    one = logger()
    one.log_metrics({"train/loss": 1.0}, 1)
    assert len(services()) >= 1
    with caplog.at_level(logging.INFO, "lockstep"):
        one._experiment.finish()
        one.log_metrics({"train/loss": 1.0}, 2)
        one.log_metrics({"train/loss": 1.0}, 3)
    warnings = [line for line in said if "W&B records no more of this run" in line]
    assert len(warnings) == 1 and "metrics.jsonl" in warnings[0]
    one.finalize("success")
    assert services() == []


def test_online_without_an_account(logger):
    with pytest.raises(ValueError, match="W&B does not begin a record: .*wandb login.*--wandb.mode offline"):
        logger(mode="online").begin()


def test_a_run_that_goes_on_does_without_its_account(logger, said):
    first = logger()
    first.begin()
    first.finalize("success")
    second = logger(mode="online")
    second.begin()
    second.log_metrics({"train/loss": 1.0}, 1)
    (warning,) = [line for line in said if "WARNING" in line]
    assert "W&B does not begin a record" in warning and "goes on without it" in warning


@pytest.mark.parametrize("fails", ["init", "Settings"])
def test_another_error_at_the_beginning_does_not_stop_the_run(logger, monkeypatch, said, caplog, fails):
    def broken(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(f"wandb.{fails}", broken)
    one = logger()
    with caplog.at_level(logging.INFO, "lockstep"):
        one.log_metrics({"train/loss": 1.0}, 1)
        one.log_metrics({"train/loss": 1.0}, 2)
    (warning,) = [line for line in said if "W&B" in line]
    assert "no space left on device" in warning and "goes on without it" in warning
    one.finalize("success")
    assert services() == []


def test_a_name_without_a_project_is_told(lockstep, said):
    run = lockstep("fit", *TINY, "--wandb.name", "mine", "--trainer.max_steps", "1", name="a")
    assert [line for line in said if "wandb.name has no effect" in line and "--wandb.project" in line]
    assert not (run.folder / "wandb").exists()


def test_without_the_package(logger, monkeypatch):
    monkeypatch.setattr("lightning.pytorch.loggers.wandb._WANDB_AVAILABLE", False)
    with pytest.raises(ValueError, match=r"wandb is not installed: pip install -e '\.\[wandb\]'"):
        logger()


def test_it_waits_for_the_network_for_a_while(logger):
    one = logger()
    one.begin()
    assert one._experiment.settings.finish_timeout == tracker.FINISH_PATIENCE
