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
    """Inside, this process may take its part of what is free now; on Linux, whose RLIMIT_DATA counts allocations,
    and nine tenths of what a ulimit leaves to it.

    Args:
        device: that is computed on; a GPU's allocator knows its limit itself.
        processes: of the machine that do the same now.
    """
    status = host_memory.status()
    if device.type != "cpu" or "RssAnon" not in status:
        yield
        return
    import resource

    before = {name: resource.getrlimit(getattr(resource, name)) for name in ("RLIMIT_DATA", "RLIMIT_AS")}
    # Not from VmData on, which has what was freed and is mapped still: that it may be taken once more, it does not say.
    most = {"RLIMIT_DATA": status["RssAnon"] + int(_LEFT * host_memory.available_to_all()) // processes}
    # A ulimit is each process's own, counts what is mapped, and training needs a margin below it just as well.
    for name, left in host_memory.left_by_ulimit():
        room = before[name][0] - int((1 - _LEFT) * max(0, left))
        most[name] = min(room, most.get(name, room))
    # Large tensors each in a mapping of its own, which goes when they go; glibc would keep them for what comes next.
    _set_glibc(mmap_threshold=1 << 20, trim_threshold=1 << 20)
    for name, size in most.items():
        hard = before[name][1]
        resource.setrlimit(getattr(resource, name), (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
    try:
        yield
    finally:
        for name in most:
            resource.setrlimit(getattr(resource, name), before[name])
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
