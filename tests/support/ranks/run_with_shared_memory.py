"""Runs train.py in a forked process that has a /dev/shm of its own, of a size.

`-m tests.support.ranks.run_with_shared_memory SIZE ARGUMENTS`, for ForkServer.
"""

import ctypes
import os
import runpy
import subprocess
import sys

from tests.conftest import REPOSITORY

_CLONE_NEWNS = 0x00020000  # of linux/sched.h


def mount(size: str) -> None:
    """Give this process and those that it starts an empty /dev/shm of a size, such as 64k.

    Raises:
        OSError: this process may not have a mount namespace of its own.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, f"no mount namespace: {os.strerror(number)}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/dev/shm"], check=True)


if __name__ == "__main__":
    mount(sys.argv[1])
    sys.argv = [str(REPOSITORY / "train.py"), *sys.argv[2:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
