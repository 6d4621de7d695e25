"""Probes the first step as a training would run it, and checks the finding of each failure."""

import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from commands.doctor.config_checks import config_checks
from commands.doctor.launch_plan import plan_launch
from commands.doctor.training import micro_batch_probe
from tests.commands.doctor import broken_models
from tests.conftest import REPOSITORY
from tests.support.families.tiny_linear import TINY_FAMILY

TINY = [*TINY_FAMILY, "--data.init_args.batch_size", "8"]
AUTO = ["--trainer.auto_micro_batch", "true"]


def broken(name):
    return ["--model", f"tests.commands.doctor.broken_models.{name}"]


@pytest.mark.slow
def test_the_kernel_does_not_kill_the_doctor_for_its_memory(tmp_path, small_group):
    """800 MB of samples where 400 are allowed: without a limit of the allocator's the trial ends without a word."""
    words = [*TINY, *broken("Greedy"), "--model.init_args.group", str(small_group), "--data.init_args.batch_size", "16"]
    command = [sys.executable, str(REPOSITORY / "train.py"), "doctor", *words]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "400", "PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path, env=environment)
    assert result.returncode in (0, 1, 2), (result.returncode, result.stderr)
    (reported,) = [line for line in result.stdout.splitlines() if re.match(r"(OK|WARN|FAIL) +micro batch ", line)]
    assert reported.startswith("FAIL")
    assert "16 samples: RuntimeError: " in reported
    assert "allocate memory" in reported
    assert "0.39 GiB (the limit of the container or job, " in reported
    assert not list(tmp_path.glob("doctor-*"))


def test_on_a_cpu_the_doctor_refuses_auto_micro_batch_as_fit_does(doctor):
    (error,) = doctor(*TINY, *AUTO)["micro batch"]
    assert error.status == "fail"
    assert "not possible on a CPU" in error.found
    assert error.remedy == "--trainer.auto_micro_batch if_possible"


@pytest.mark.slow
def test_where_fit_would_find_a_smaller_micro_batch_so_does_the_doctor(doctor, monkeypatch):
    """The broken models raise the errors that a GPU's allocator would."""
    monkeypatch.setattr(micro_batch_probe, "reports_oom", lambda device: True)
    (fits,) = doctor(*TINY, *broken("Hungry"), *AUTO)["micro batch"]
    assert fits.status == "ok"
    assert fits.found.startswith("2 samples on cpu: loss")
    assert fits.found.endswith("8 do not fit: trainer.auto_micro_batch chooses about this size")
    (error,) = doctor(*TINY, *broken("Hungry"))["micro batch"]
    assert error.status == "fail"
    assert error.remedy.startswith("--data.init_args.micro_batch_size 4")
    (error,) = doctor(*TINY, *broken("Hungry"), "--model.init_args.most", "0", *AUTO)["micro batch"]
    assert error.status == "fail"
    assert error.found.startswith("1 samples: RuntimeError")
    assert error.remedy
    (error,) = doctor(*TINY, *broken("HungryWhole"), *AUTO)["micro batch"]
    assert error.status == "fail"
    assert error.remedy == "--trainer.auto_micro_batch if_possible"
    (error,) = doctor(*TINY, *broken("HungryWhole"), AUTO[0], "if_possible")["micro batch"]
    assert error.found.startswith("8 samples: RuntimeError")
    assert error.remedy == "--model.init_args.most 1000"


@pytest.mark.slow
def test_an_error_before_the_first_step_names_its_part(doctor):
    findings = doctor(*TINY, "--trainer.accelerator", "gpuu")
    (error,) = findings["config"]
    assert error.status == "fail"
    assert error.found.startswith("trainer: ")
    assert "gpuu" in error.found
    assert "data" not in findings
    assert "prepare" not in error.remedy
    (untried,) = findings["micro batch"]
    assert (untried.status, untried.found) == ("warn", "not run: Lightning refuses the settings of the trainer")
    (error,) = doctor(*TINY, *broken("Unmade"))["micro batch"]
    assert error.found == "the model cannot be created: 64 channels do not split over 3 heads"
    (error,) = doctor(*TINY, "--data", "tests.commands.doctor.broken_models.Gone")["data"]
    assert error.found == "shard 3 is gone"
    assert error.remedy.startswith("python train.py prepare --config ")
    injected = ["--data.init_args.length", "8", "--data.init_args.fault", "raise"]
    (error,) = doctor(*TINY, *injected)["data"]
    assert "injected at sample 0" in error.found
    assert error.remedy.startswith("LOCKSTEP_DEBUG=1 ")


def test_a_wrong_value_is_reported_with_its_line(doctor, tmp_path):
    (error,) = doctor(*TINY, "--trainer.precision", "16-true-x")["config"]
    assert error.found.startswith("command line: trainer.precision: Expected an int or transformer-engine or ")
    assert error.remedy.startswith("correct the option")
    for name, text in {"epochs": "trainer:\n  max_epochs: ten\n", "lone": "trainer: 5\n"}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    both = doctor(*TINY, "--config", "epochs.yaml", "--trainer.max_epochs", "many")["config"]
    assert [error.found.partition(": Expected")[0] for error in both] == [
        "epochs.yaml:2: trainer.max_epochs",
        "command line: trainer.max_epochs",
    ]
    (error,) = doctor(*TINY, "--config", "lone.yaml")["config"]
    assert error.found == "lone.yaml:1: trainer: expected settings, KEY: VALUE; found 5"


def test_sharded_weights_are_reported_as_not_run(doctor):
    findings = doctor(*TINY, "--trainer.devices", "2", "--trainer.strategy", "fsdp")
    (untried,) = findings["micro batch"]
    assert untried.status == "warn"
    assert untried.found.startswith("not run: the weights are to be sharded over 2")
    assert "--trainer.strategy auto --trainer.devices 1" in untried.remedy
    assert findings["checkpoint folder"][0].status == "warn"


def test_nothing_is_left_of_a_step_that_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arguments = [*TINY, *broken("Endless")]
    checks = {check.name: check for check in config_checks(arguments, plan_launch(arguments, {}), {}, Path("runs"))}
    trial = checks["micro batch"]
    thread = threading.Thread(target=lambda: [list(check.examine()) for check in checks.values()], daemon=True)
    thread.start()
    try:
        assert broken_models.Endless.began.wait(120)
        assert len(list(tmp_path.glob("doctor-*"))) == 1
        trial.give_up()
        assert list(tmp_path.glob("doctor-*")) == []
    finally:
        broken_models.Endless.go_on.set()
    thread.join(120)
    assert not thread.is_alive()
    assert trial.late.status == "warn"
    assert trial.late.found == f"the first steps were not done within {trial.seconds} s"
