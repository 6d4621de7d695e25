"""Runs train.py, or a module, in a forked process on one of two machines, with its errors in a file of their own.

`-m tests.support.ranks.run_in_namespace NAMESPACE ERRORS [-m MODULE] ARGUMENTS`, for ForkServer.
"""

import os
import runpy
import sys

from benchmarks.network.namespaces import enter
from tests.conftest import REPOSITORY

if __name__ == "__main__":
    namespace, errors, *arguments = sys.argv[1:]
    enter(namespace)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [str(REPOSITORY / "train.py"), *arguments]
        runpy.run_path(sys.argv[0], run_name="__main__")
