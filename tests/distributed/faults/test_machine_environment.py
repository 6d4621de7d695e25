"""A training does not depend on the clock of the machine, and needs no home directory and no user name."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY, TINY
from tests.support.faults.step_faults import fault

FIT = ["fit", *TINY, "--trainer.max_steps", "8", "--last_checkpoint.every_n_steps", "2", "--watchdog.timeout", "8"]
DAY = 86400.0


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [DAY, -DAY], ids=["forward", "back"])
def test_a_clock_that_jumps_changes_no_training(team, seconds):
    """No watchdog ends the run, the newest checkpoint stays the newest, and the losses are an undisturbed run's."""
    undisturbed = team(*FIT, name="undisturbed")
    assert undisturbed.end(120) == [0, 0], undisturbed.output
    jumped = team(
        *FIT,
        *fault("SetClockAt", step=3, process=-1, seconds=seconds),
        *fault("SignalAt", name="SIGKILL", step=5),
        name="a",
    )
    assert jumped.end(120)[0] == -signal.SIGKILL, jumped.output
    # The second start has the machine's true clock again. Each last two checkpoints lie on both sides of a jump.
    second = team(*FIT, "--ckpt_path", "last", *fault("SignalAt", name="SIGKILL", step=7), name="a")
    assert second.end(120)[0] == -signal.SIGKILL, second.output
    assert "resuming after step 4" in second.logs[0]
    third = team(*FIT, "--ckpt_path", "last", name="a")
    assert third.end(120) == [0, 0], third.output
    assert "resuming after step 6" in third.logs[0]
    assert third.series("train/loss") == undisturbed.series("train/loss")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="user namespaces are of Linux")
def test_a_user_without_a_home_directory_and_a_name_trains(tmp_path):
    """Containers run as a user ID that no passwd file has; several libraries look the user up when imported."""
    unnamed = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    probe = subprocess.run([*unnamed, "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no user namespace here: {probe.stderr}")
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    train = [sys.executable, str(REPOSITORY / "train.py"), "fit", *TINY, "--trainer.max_steps", "2", "--run_name", "a"]
    ended = subprocess.run(
        [*unnamed, *train], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (tmp_path / "runs/a/checkpoints/last.ckpt").stat().st_uid == os.geteuid()
    assert "Traceback" not in ended.stderr
