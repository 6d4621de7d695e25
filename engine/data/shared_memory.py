"""Moves the batches of workers to /dev/shm for the training process, and reports when space runs out.

Docker gives a container 64 MiB of it by default. When it is full, a worker is killed (SIGBUS, "Bus error") or, with
torch 2.13, loses its batch, and the training hangs. Both of torch's sharing strategies, `file_descriptor` and
`file_system`, use it.
"""

import errno
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from engine.system.byte_size import format_bytes

PREFETCH_FACTOR = 2
"""Batches that a worker loads ahead, torch's default."""

SHARED_MEMORY = Path("/dev/shm")

MAX_WAIT = 60.0  # seconds that a worker waits for space
_POLL_SECONDS = 0.01

_REMEDY = (
    "Enlarge it: `docker run --shm-size=SIZE` (or --ipc=host), in Kubernetes an emptyDir with `medium: Memory` mounted "
    "at /dev/shm, on a machine of your own `mount -o remount,size=SIZE /dev/shm`. Or take less of it: fewer workers "
    "(--data.init_args.num_workers; 0 needs none), a smaller --data.init_args.prefetch_factor or a smaller "
    "--data.init_args.micro_batch_size"
)


class SharedMemoryFullError(OSError):
    """A batch does not fit into the free shared memory. Nothing was written."""


def tensors_of(batch: object) -> Iterator[torch.Tensor]:
    """Iterate over all tensors of nested tuples, lists and dictionaries."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, (list, tuple, dict)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_of(part)


def free_bytes(folder: Path = SHARED_MEMORY) -> int | None:
    """Return the free bytes of shared memory, or None if there is no such folder, as on Windows and macOS."""
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError):
        return None
    return room.f_bavail * room.f_frsize


def move_to_shared_memory(batch: object, max_wait: float = MAX_WAIT, folder: Path = SHARED_MEMORY) -> int:
    """Move a batch's tensors to shared memory in a worker, and wait for space if necessary.

    torch would move them in a thread of the worker. A failure there loses the batch silently, and the training hangs.

    Args:
        batch: nested tensors, changed in place.
        max_wait: seconds to wait for space.
        folder: folder of the shared memory.

    Returns:
        Bytes of the tensors.

    Raises:
        SharedMemoryFullError: there was no space within `max_wait`, or the batch is larger than the shared memory.
    """
    tensors = [
        tensor
        for tensor in tensors_of(batch)
        if tensor.numel() and tensor.device.type == "cpu" and not tensor.is_shared()
    ]
    # `share_memory_` moves the whole storage, also if the tensor is a view of a part.
    size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    start, free = time.monotonic(), free_bytes(folder)
    while True:
        try:
            if free is None or size <= free:
                for tensor in tensors:
                    tensor.share_memory_()
                return size
            cause = None
        except RuntimeError as error:  # another worker took the space since it was measured
            if "No space left" not in str(error):
                raise
            cause = error
        # A batch that is larger than the whole shared memory would never fit.
        if size > _capacity(folder) or time.monotonic() - start > max_wait:
            raise SharedMemoryFullError(
                errno.ENOSPC,
                f"a batch has {format_bytes(size)}, but {folder} has {format_bytes(free or 0)} free of "
                f"{format_bytes(_capacity(folder))}. {_REMEDY}",
            ) from cause
        time.sleep(_POLL_SECONDS)
        free = free_bytes(folder)


def _capacity(folder: Path) -> float:
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError):
        return math.inf
    return room.f_blocks * room.f_frsize


def shortage_message(
    batch_bytes: int,
    workers: int,
    processes: int,
    free: int,
    prefetch_factor: int | None = None,
    folder: Path = SHARED_MEMORY,
) -> str | None:
    """Return a warning if the batches that may be in flight need more than the free space, else None.

    Args:
        batch_bytes: bytes of the first batch.
        workers: workers of each training process.
        processes: training processes of this machine.
        free: bytes that were free before loading began.
        prefetch_factor: batches that a worker loads ahead; None for PREFETCH_FACTOR.
        folder: folder of the shared memory.
    """
    # +1: the batch of the current step keeps its space until it is released.
    ahead = PREFETCH_FACTOR if prefetch_factor is None else prefetch_factor
    needed = batch_bytes * (ahead * workers + 1) * processes
    if needed <= free:
        return None
    return (
        f"{folder} had {format_bytes(free)} free, but up to {format_bytes(needed)} may be needed "
        f"({format_bytes(batch_bytes)} a batch, {ahead} ahead for each of {workers} workers and one in use, in each of "
        f"{processes} processes of this machine); when it is full, workers wait, and fail after {MAX_WAIT:.0f} s. "
        f"{_REMEDY}"
    )
