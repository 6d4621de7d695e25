"""Room in /dev/shm, through which a worker's batches reach the training process.

A container has 64 MiB of it unless told. When it is full a worker is killed (SIGBUS, "Bus error") or, with torch 2.13,
loses its batch, and the training waits for ever. Both of torch's sharing strategies, `file_descriptor` and
`file_system`, put tensors there.
"""

import errno
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

PREFETCHED = 2
"""Batches that a worker loads ahead, as torch's DataLoader has it."""

SHARED_MEMORY = Path("/dev/shm")

PATIENCE = 60.0
_PAUSE = 0.01  # seconds, both

_REMEDY = (
    "Enlarge it: `docker run --shm-size=SIZE` (or --ipc=host), in Kubernetes an emptyDir with `medium: Memory` mounted "
    "at /dev/shm, on a machine of your own `mount -o remount,size=SIZE /dev/shm`. Or take less of it: fewer workers "
    "(--data.init_args.num_workers; 0 needs none) or a smaller --data.init_args.micro_batch_size"
)


class SharedMemoryFull(OSError):
    """A batch does not fit into what is free of it; nothing was written."""


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """All tensors in a batch of nested tuples, lists and dictionaries."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, (list, tuple, dict)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_of(part)


def free_bytes(folder: Path = SHARED_MEMORY) -> int | None:
    """Free there; None where there is no such folder, as on Windows and macOS."""
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError):
        return None
    return room.f_bavail * room.f_frsize


def put_there(batch: Any, patience: float = PATIENCE, folder: Path = SHARED_MEMORY) -> int:
    """In a worker: moves a batch's tensors into shared memory, and waits for room while others are being taken out.

    torch would do it in a thread, where a failure loses the batch without a word, and the training waits for ever.

    Args:
        batch: is changed in place.
        patience: seconds to wait.
        folder: where they are put.

    Returns:
        bytes

    Raises:
        SharedMemoryFull: there was no room in all that time, or never is.
    """
    tensors = [one for one in tensors_of(batch) if one.numel() and one.device.type == "cpu" and not one.is_shared()]
    size = sum(one.untyped_storage().nbytes() for one in tensors)
    began, free = time.monotonic(), free_bytes(folder)
    while True:
        try:
            if free is None or size <= free:
                for one in tensors:
                    one.share_memory_()
                return size
            reason = None
        except RuntimeError as error:  # another worker was faster
            if "No space left" not in str(error):
                raise
            reason = error
        if size > _whole(folder) or time.monotonic() - began > patience:
            raise SharedMemoryFull(
                errno.ENOSPC,
                f"a batch has {in_units(size)}, but {folder} has {in_units(free or 0)} free of "
                f"{in_units(_whole(folder))}. {_REMEDY}",
            ) from reason
        time.sleep(_PAUSE)
        free = free_bytes(folder)


def _whole(folder: Path) -> float:
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError):
        return math.inf
    return room.f_blocks * room.f_frsize


def too_little(
    batch_bytes: int, workers: int, processes: int, free: int, folder: Path = SHARED_MEMORY
) -> str | None:
    """What to say when the batches that may be under way at once exceed what was free before the first; None: they fit.

    Args:
        batch_bytes: of one batch, as the first one has.
        workers: of each training process.
        processes: training processes of this machine.
        free: bytes that were free before loading began.
        folder: where they are put.
    """
    # What a process is training on keeps its room, too, until it lets go of it.
    needed = batch_bytes * (PREFETCHED * workers + 1) * processes
    if needed <= free:
        return None
    return (
        f"{folder} had {in_units(free)} free, but up to {in_units(needed)} may be needed ({in_units(batch_bytes)} a "
        f"batch, {PREFETCHED} ahead for each of {workers} workers and one in use, in each of {processes} processes of "
        f"this machine); when it is full, workers wait, and fail after {PATIENCE:.0f} s. {_REMEDY}"
    )


def in_units(number: float) -> str:
    """`1.5 MiB`"""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
