"""Enters network namespaces of Linux, by which one machine has several network stacks."""

import ctypes
import os
from pathlib import Path

NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000  # of linux/sched.h


def enter(name: str) -> None:
    """Move this thread, and threads that it starts, to a namespace.

    Raises:
        OSError: it does not exist, or this process may not enter it.
    """
    with (NAMESPACES / name).open() as namespace:
        # Python has setns from 3.12 on.
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter the network namespace {name}: {os.strerror(number)}")
