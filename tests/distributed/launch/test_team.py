"""The fixture `team` starts ranks as torchrun does."""

import os
import signal
import sys
from contextlib import suppress
from types import SimpleNamespace

import psutil
import pytest

from tests.conftest import TINY
from tests.support.faults.step_faults import fault
from tests.support.ranks.team import ForkServer, Team
from tests.support.waiting import wait_until


def test_a_team_trains_and_ends(team):
    run = team("fit", *TINY, "--trainer.max_steps", "5", name="a", processes=2).succeeded()
    assert sorted(run.series("train/loss")) == [1, 2, 3, 4, 5]
    assert "= 2 ranks x 8 samples" in run.output


def test_a_process_that_survives_its_team_fails_the_test(tmp_path):
    survivor = psutil.Popen(["sleep", "60"], start_new_session=True)
    forge = SimpleNamespace(start=lambda *_: survivor.pid, listen=lambda: None, codes={survivor.pid: 0})
    try:
        run = Team(forge, ["fit"], tmp_path, "a", processes=1)
        assert run.end() == [0]
        with pytest.raises(AssertionError, match=f"pid={survivor.pid}"):
            run.end_cleanly()
    finally:
        survivor.kill()
        survivor.wait()
    assert run.end_cleanly() == [0]
    forge.codes.clear()
    with pytest.raises(AssertionError, match="None"):
        run.end_cleanly(timeout=0.1)


@pytest.mark.slow
def test_faults_reach_one_process(team):
    run = team("fit", *TINY, *fault("SignalAt", name="SIGKILL", step=3, process=1), name="a", processes=2)
    codes = run.end_cleanly()
    assert codes[1] == -9, run.output
    assert codes[0] != 0, run.output


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a process when its parent ends")
def test_no_process_outlives_the_tests(tmp_path):
    """The end of the tests, also by SIGKILL, closes the pipe of the requests."""
    forge, output = ForkServer(preload=False), tmp_path / "output.log"
    try:
        process = psutil.Process(forge.start(["fit", *TINY], os.environ, tmp_path, output))
        wait_until(output.exists)
        process.send_signal(signal.SIGSTOP)  # it cannot end by itself
    finally:
        forge.close()
    with suppress(psutil.NoSuchProcess):
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
