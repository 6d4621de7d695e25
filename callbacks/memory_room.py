"""A limit under which a CPU's allocator says that memory has run out, where the kernel would kill the process."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine import host_memory

_LEFT = 0.9
"""The share of what is free that an attempt may take: training has a little more than two passes."""


@contextmanager
def memory_room(device: torch.device, processes: int) -> Iterator[None]:
    """Inside, this process may take its part of what is free now; on Linux, whose RLIMIT_DATA counts allocations.

    Args:
        device: that is computed on; a GPU's allocator knows its limit itself.
        processes: of the machine that do the same now.
    """
    status = host_memory.status()
    if device.type != "cpu" or "VmData" not in status:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = status["VmData"] + int(_LEFT * host_memory.available()) // processes
    allowed = [limit for limit in before if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([most, *allowed]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
