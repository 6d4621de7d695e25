"""A limit under which a CPU's allocator says that memory has run out, where the kernel would kill the process."""

import ctypes
import gc
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
    if device.type != "cpu" or "RssAnon" not in status:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    # Not from VmData on, which has what was freed and is mapped still: that it may be taken once more, it does not say.
    most = status["RssAnon"] + int(_LEFT * host_memory.available()) // processes
    allowed = [limit for limit in before if limit != resource.RLIM_INFINITY]
    # Large tensors each in a mapping of its own, which goes when they go; glibc would keep them for what comes next.
    _set_glibc(mmap_threshold=1 << 20, trim_threshold=1 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (min([most, *allowed]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
        _set_glibc(mmap_threshold=32 << 20, trim_threshold=64 << 20)  # what glibc itself comes to with large tensors


def give_back(device: torch.device) -> None:
    """What an attempt has freed goes back to where it came from; else the next one has so much less, in pieces."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    elif host_memory.status():
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others keep little
        if trim is not None:
            trim(0)


def _set_glibc(mmap_threshold: int, trim_threshold: int) -> None:
    """Bytes from which on a block is mapped by itself, and of free ones at the end that go back (man 3 mallopt)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-3, mmap_threshold)
        mallopt(-1, trim_threshold)
