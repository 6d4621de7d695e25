"""A process with too few open files is refused at its start; its own limit is raised where the system allows it."""

import subprocess
import sys

import pytest

from engine.system.open_files import raise_open_file_limit
from tests.conftest import REPOSITORY

PROGRAM = """
import resource, sys
from engine.system.open_files import raise_open_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
try:
    raise_open_file_limit()
except ValueError as error:
    print(error)
else:
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")


def limited(soft: int, hard: int) -> str:
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_own_limit_is_raised():
    assert limited(64, 500) == "500 500\n"


def test_a_limit_of_the_system_that_is_too_low_is_refused():
    """Loader workers could pass no batch on, and the training would wait for ten minutes."""
    assert limited(64, 64).startswith(
        "this process may open 64 files (`ulimit -Hn`), but a training with loader workers"
    )


def test_a_system_that_refuses_its_own_hard_limit_keeps_the_old_one(monkeypatch):
    """macOS states no hard limit, and allows no more than kern.maxfilesperproc."""
    import resource

    tried = []

    def refuse(_, limits):
        tried.append(limits)
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_open_file_limit()
    assert tried == [(65_536, resource.RLIM_INFINITY)]
