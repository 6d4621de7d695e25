"""The machine's memory, and the part of it that processes share: /dev/shm."""

import os
from collections.abc import Iterator
from pathlib import Path

from commands.doctor.finding import Finding
from commands.doctor.plan import Plan
from engine.host_memory import available, limit

GIB = 1 << 30
MIB = 1 << 20
_OF_A_PROCESS = 1.0
"""GiB that a training process takes before its model: Python, PyTorch, Lightning, a first batch."""
_OF_A_LOADER = 0.4
"""GiB of a loader process, which imports the same."""
_SHARED_BY_A_LOADER = 256 * MIB
"""Bytes in which a loader hands over two batches of images, generously."""


def memory(plan: Plan, proc: Path = Path("/proc/self"), groups: Path = Path("/sys/fs/cgroup")) -> Iterator[Finding]:
    """Whether all processes of this node fit into what is left.

    Args:
        plan: processes on this node and loaders of each.
        proc: the folder that says which control groups the process is in.
        groups: where these are mounted.
    """
    left, most = available(proc, groups) / GIB, limit(proc, groups)
    found = f"{left:.1f} GiB available of {most.size / GIB:.1f} GiB, {most.source}"
    processes, loaders = plan.processes(), plan.loaders()
    need = processes * (_OF_A_PROCESS + loaders * _OF_A_LOADER)
    if left >= need:
        yield Finding("memory", "ok", found)
        return
    team = f"{processes} process{'es' if processes > 1 else ''}" + (f" with {loaders} loaders each" if loaders else "")
    fails = left < need / 2
    remedy = "--data.init_args.num_workers 0, or " if loaders else ""
    yield Finding(
        "memory", "fail" if fails else "warn", f"{found}; {team} need about {need:.1f} GiB before their model",
        "when memory runs out, Linux kills a process without a word: `Killed`, exit code 137",
        remedy + "more memory: sbatch --mem, docker run --memory, or end what else runs (ps aux --sort=-rss | head)",
    )  # fmt: skip


def shared_memory(plan: Plan, folder: Path = Path("/dev/shm")) -> Iterator[Finding]:
    """Whether loaders and NCCL, which hand over their data there, find room.

    Args:
        plan: processes on this node and loaders of each.
        folder: the file system of shared memory.
    """
    check, loaders = "shared memory", plan.processes() * plan.loaders()
    several = loaders > 0 or plan.processes() > 1 or isinstance(plan.workers, str)
    why = (
        "loaders hand over batches there, and NCCL data between GPUs: a full one kills a loader with `Bus error`, or "
        "`DataLoader worker is killed by signal`"
    )
    remedy = "docker run --shm-size=8g (Kubernetes: an emptyDir with medium: Memory on /dev/shm)"
    if loaders:
        remedy += ", or --data.init_args.num_workers 0"
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        words = f"{folder} is not there" if not folder.is_dir() else f"{folder} cannot be written to"
        yield Finding(check, "fail" if several else "warn", words, why, remedy)
        return
    state = os.statvfs(folder)
    size, free = state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
    found = f"{_size(free)} free of {_size(size)} in {folder}"
    need = loaders * _SHARED_BY_A_LOADER
    if free < 128 * MIB:
        yield Finding(check, "fail" if several else "warn", found, why, remedy)
    elif free < need:
        words = f"{found}; {loaders} loaders can need {_size(need)}"
        yield Finding(check, "warn", words, why, remedy)
    else:
        yield Finding(check, "ok", found)


def _size(count: float) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"
