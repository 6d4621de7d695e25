"""The code is in the style that setup.cfg describes."""

import subprocess
import sys

from tests.conftest import REPOSITORY


def test_flake8():
    command = [sys.executable, "-m", "flake8"]
    check = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert check.returncode == 0, check.stdout + check.stderr
