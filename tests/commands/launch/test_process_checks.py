"""Tests the errors before Lightning is imported: variables that are no numbers, a removed working directory."""

import os
import subprocess
import sys

import pytest

from commands.launch.process_checks import check_process, check_rank_variables
from tests.conftest import REPOSITORY


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("RANK", "x", "at least 0"),
        ("RANK", "", "at least 0"),
        ("RANK", "-1", "at least 0"),
        ("LOCAL_RANK", "1.5", "at least 0"),
        ("SLURM_PROCID", "zz", "at least 0"),
        ("WORLD_SIZE", "0", "at least 1"),
        ("LOCAL_WORLD_SIZE", "0", "at least 1"),
        ("SLURM_NTASKS", "a", "at least 1"),
        ("MASTER_PORT", "99999", "at least 0 and at most 65535"),
        ("MASTER_PORT", "tcp://10.0.0.1:80", "at least 0"),
    ],
)
def test_a_variable_that_is_no_number_is_named(name, value, expected):
    with pytest.raises(ValueError, match=f"variable {name} is {value!r}, expected a whole number of {expected}"):
        check_rank_variables({name: value, "HOME": "x"})


def test_what_launchers_set_is_accepted():
    check_rank_variables({})
    check_rank_variables({"RANK": "3", "WORLD_SIZE": "4", "MASTER_PORT": "29500", "SLURM_RESTART_COUNT": "0"})


def test_port_0_is_for_a_single_rank():
    """It is no port: torch's launcher passes on the 0, and the ranks waited for each other for 300 s."""
    check_rank_variables({"WORLD_SIZE": "1", "MASTER_PORT": "0"})
    with pytest.raises(ValueError, match=r"MASTER_PORT is 0, where the 2 ranks of WORLD_SIZE cannot meet; give"):
        check_rank_variables({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "0"})


def test_the_start_ends_with_one_line():
    """Lightning converts RANK when it is imported, which ended in a traceback."""
    command = [sys.executable, str(REPOSITORY / "train.py"), "fit", "--config", "x.yaml"]
    ended = subprocess.run(command, env={**os.environ, "RANK": "x"}, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: the environment variable RANK is 'x'")
    assert ended.stderr.count("\n") == 1


def test_a_working_directory_that_was_removed(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ValueError, match="the working directory has been removed"):
        check_process({})
