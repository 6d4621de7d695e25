"""A start that is refused leaves no folder that looks like a run."""

import pytest
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback

from commands.cli.main import main
from engine.health.exit_codes import ExitCode
from tests.support.families.tiny_linear import TINY_FAMILY

# The message, and options.
REFUSED = {
    # They would exhaust the memory before one of them reports anything.
    "processes": ("starts 100000 processes on this machine", "--trainer.devices", "100000"),
    "options": ("trainer.limit_train_batches is 0, so fit would", "--trainer.limit_train_batches", "0"),
    "checkpoint": ("checkpoint absent.ckpt does not exist", "--ckpt_path", "absent.ckpt"),
    # The trainer's start finds it, when train.log has begun.
    "data": ("the training set is empty", "--data.init_args.length", "0"),
    # The sanity check finds it.
    "monitor": ("'val/nothing', which is not logged", "--best_checkpoint.monitor", "val/nothing"),
}


class InTraining(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        raise ValueError("injected")


def refuse(message, *options):
    with pytest.raises((ValueError, OSError, MisconfigurationException), match=message):
        main(["fit", *TINY_FAMILY, "--data.init_args.batch_size", "8", *options])


@pytest.mark.parametrize("name", [["--run_name", "a"], []], ids=["named", "unnamed"])
@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_refused_run_leaves_no_folder(lockstep, tmp_path, refused, name):
    refuse(*refused, *name)
    assert list((tmp_path / "runs").glob("[!.]*")) == []


def test_a_setting_that_the_timing_of_threads_finds_wrong_is_refused(lockstep, tmp_path, monkeypatch):
    """The timing belongs to the start: its ValueError is no failure of the run."""
    monkeypatch.setattr("callbacks.performance.cpu_threads.available_cpus", lambda: 4.0)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with pytest.raises(ValueError, match="give exactly one of data.init_args.batch_size") as error:
        main(["fit", *TINY_FAMILY, "--data.init_args.batch_size", "null", "--run_name", "a"])
    assert vars(error.value).get("exit_code", ExitCode.USER_ERROR) == ExitCode.USER_ERROR
    assert not (tmp_path / "runs/a").exists()


def test_a_folder_that_was_there_stays(lockstep, tmp_path):
    (tmp_path / "runs/a").mkdir(parents=True)
    refuse(*REFUSED["data"], "--run_name", "a")
    assert (tmp_path / "runs/a").is_dir()


def test_a_folder_with_anything_else_stays(lockstep, tmp_path, monkeypatch):
    """A user's callback has written files into the folder."""
    monkeypatch.setattr(InTraining, "setup", lambda self, *_, **__: (tmp_path / "runs/a/notes").touch(), raising=False)
    added = "--trainer.callbacks+=tests.commands.test_refused_start.InTraining"
    refuse(*REFUSED["data"], added, "--run_name", "a")
    assert {"notes", "train.log"} <= {path.name for path in (tmp_path / "runs/a").iterdir()}


def test_a_run_that_has_begun_stays(lockstep, tmp_path):
    refuse("injected", "--trainer.callbacks+=tests.commands.test_refused_start.InTraining", "--run_name", "a")
    assert {"config.yaml", "train.log"} <= {path.name for path in (tmp_path / "runs/a").iterdir()}


def test_git_ignores_what_a_named_run_writes(lockstep, tmp_path):
    refuse(*REFUSED["data"], "--run_name", "a")
    assert (tmp_path / "runs/.gitignore").read_text() == "*\n"
