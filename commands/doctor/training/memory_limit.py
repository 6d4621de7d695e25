"""Limits the memory of the doctor's own process, so that an allocation fails before the kernel kills the doctor."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.system import host_memory

_PROBE_SHARE = 0.9
"""Share of the available memory that a probe may take. Training needs a little more than two passes."""


@contextmanager
def limit_host_memory(device: torch.device, ranks: int) -> Iterator[None]:
    """Limit this process to its share of the memory that is available now.

    Only Linux counts allocations in RLIMIT_DATA. On other systems nothing is limited.

    Args:
        device: device of the probe. A GPU's allocator reports that memory has run out itself.
        ranks: number of ranks of a node, which share its memory.
    """
    status = host_memory.read_proc_status()
    if device.type != "cpu" or "RssAnon" not in status:
        yield
        return
    import resource

    soft, hard = before = resource.getrlimit(resource.RLIMIT_DATA)
    # VmData would include memory that is freed but still mapped, so count from the resident memory.
    limit = status["RssAnon"] + int(_PROBE_SHARE * host_memory.available_cgroup_memory()) // ranks
    limit = min([limit, *(set_limit for set_limit in (soft, hard) if set_limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
