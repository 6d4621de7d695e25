"""Tests that signals are handled from a process's first moment to its last."""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

# The object goes when Python has taken its signal handlers away already.
LATE = """
import os, signal, sys
from commands.launch.early_signal_handlers import install_signal_handlers
install_signal_handlers()

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.{name}):
        kill(pid, number)

last = Last()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_at_the_very_end_is_no_failure(name):
    """Plain Lightning: exit code 138 or 143 after a run that is complete, which SLURM takes for a failed job."""
    end = subprocess.run([sys.executable, "-c", LATE.format(name=name), "fit"], cwd=REPOSITORY, timeout=60)
    assert end.returncode == 0
