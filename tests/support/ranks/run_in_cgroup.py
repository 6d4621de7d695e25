"""Runs train.py in a forked process in a control group, whose limits and counters are its own.

`-m tests.support.ranks.run_in_cgroup FOLDER ARGUMENTS`, for ForkServer.
"""

import os
import runpy
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

if __name__ == "__main__":
    Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
    sys.argv = [str(REPOSITORY / "train.py"), *sys.argv[2:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
