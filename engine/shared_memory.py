"""Room in /dev/shm, through which a worker's batches reach the training process.

A container has 64 MiB of it unless told. A worker that writes beyond it is killed by the kernel (SIGBUS, "Bus error"),
without a word of what was too small. Both of torch's sharing strategies, `file_descriptor` and `file_system`, put
tensors there.
"""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

PREFETCHED = 2
"""Batches that a worker loads ahead, as torch's DataLoader has it."""

SHARED_MEMORY = Path("/dev/shm")

_REMEDY = (
    "Enlarge it: `docker run --shm-size=SIZE` (or --ipc=host), in Kubernetes an emptyDir with `medium: Memory` mounted "
    "at /dev/shm, on a machine of your own `mount -o remount,size=SIZE /dev/shm`. Or take less of it: fewer workers "
    "(--data.init_args.num_workers; 0 needs none) or a smaller --data.init_args.micro_batch_size"
)


class SharedMemoryFull(OSError):
    """A batch does not fit into what is free of it; nothing was written."""


def tensor_bytes(batch: Any) -> int:
    """Bytes of all tensors and arrays in a batch of nested tuples, lists and dictionaries."""
    if isinstance(batch, (torch.Tensor, np.ndarray)):
        return batch.nbytes
    if isinstance(batch, dict):
        return sum(map(tensor_bytes, batch.values()))
    return sum(map(tensor_bytes, batch)) if isinstance(batch, (list, tuple)) else 0


def free_bytes(folder: Path = SHARED_MEMORY) -> int | None:
    """Free there; None where there is no such folder, as on Windows and macOS."""
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError):
        return None
    return room.f_bavail * room.f_frsize


def require_room(batch_bytes: int, folder: Path = SHARED_MEMORY) -> None:
    """In a worker, before its batch is put there.

    Raises:
        SharedMemoryFull: it does not fit.
    """
    free = free_bytes(folder)
    if free is not None and batch_bytes > free:
        raise SharedMemoryFull(
            errno.ENOSPC,
            f"a batch has {in_units(batch_bytes)}, but {folder} has {in_units(free)} free: a worker that wrote it "
            f"there would be killed. {_REMEDY}",
        )


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
        f"this machine); when it is full, workers are killed. {_REMEDY}"
    )


def in_units(number: float) -> str:
    """`1.5 MiB`"""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
