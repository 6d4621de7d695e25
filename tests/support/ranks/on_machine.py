"""Runs train.py in a forked process on one of two machines, with its errors in a file of their own.

`-m tests.support.ranks.on_machine NAMESPACE ERRORS ARGUMENTS`, for ForkServer.
"""

import os
import runpy
import sys

from benchmarks.network.namespaces import enter
from tests.conftest import REPOSITORY

if __name__ == "__main__":
    namespace, errors = sys.argv[1:3]
    enter(namespace)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
    sys.argv = [str(REPOSITORY / "train.py"), *sys.argv[3:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
