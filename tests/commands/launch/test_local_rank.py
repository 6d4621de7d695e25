"""Tests the old start with `python -m torch.distributed.launch` without `--use_env`."""

import logging
import os
import subprocess
import sys

import pytest

from commands.launch.local_rank import after_command, without_local_rank
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("argument", ["--local-rank=3", "--local_rank=3"])
def test_the_argument_is_dropped_and_sets_the_variable_that_is_absent(messages, argument):
    environ: dict[str, str] = {}
    logging.getLogger("lockstep").setLevel(logging.DEBUG)
    assert after_command([argument, "fit", "--config", "x"]) == ["fit", "--config", "x", argument]
    assert without_local_rank(["fit", "--config", "x", argument], environ) == ["fit", "--config", "x"]
    assert environ == {"LOCAL_RANK": "3"}
    assert messages == [f"{argument} of torch.distributed.launch is dropped: LOCAL_RANK is 3"]


def test_the_launchers_variable_counts():
    environ = {"LOCAL_RANK": "1"}
    assert without_local_rank(["--local-rank=0", "fit"], environ) == ["fit"]
    assert environ == {"LOCAL_RANK": "1"}


def test_arguments_that_only_look_like_it_stay():
    for other in (["fit", "--local_rank"], ["fit", "--local-rank=x"], ["fit", "--trainer.local_rank=3"]):
        assert without_local_rank(other, {}) == after_command(other) == other


@pytest.mark.launcher
@pytest.mark.slow
def test_torchs_launcher_without_use_env_is_understood(tmp_path):
    """It passes the argument before the command, which must still be found; the parser must not see the argument."""
    launch = [sys.executable, "-W", "ignore", "-m", "torch.distributed.launch", "--nproc_per_node", "1"]
    command = [*launch, "--master_port", "0", str(REPOSITORY / "train.py"), "fit", "--trainer.max_epoch", "1"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert "unrecognized arguments: --trainer.max_epoch 1; did you mean" in done.stderr, done.stderr
