"""Checks the memory: RAM, and shared memory in /dev/shm."""

import os
from collections.abc import Iterator
from pathlib import Path

from commands.doctor.check import Finding
from commands.doctor.launch_plan import LaunchPlan
from engine.system.byte_size import GIB, MIB, format_bytes
from engine.system.host_memory import available_memory, memory_limit

_PER_RANK = 1.0
"""GiB of a rank before its model: Python, PyTorch, Lightning, a first batch."""
_PER_LOADER = 0.4
"""GiB of a loader worker, which imports the same."""
_SHARED_PER_LOADER = 256 * MIB
"""Bytes of shared memory of a loader worker, a generous estimate for two batches of images."""


def check_memory(
    plan: LaunchPlan, proc: Path = Path("/proc/self"), groups: Path = Path("/sys/fs/cgroup")
) -> Iterator[Finding]:
    """Check that all ranks of this node fit into the available memory.

    Args:
        plan: ranks on this node and loader workers of each.
        proc: directory in /proc that names the control groups of the process.
        groups: mount point of the control groups.
    """
    available_gib, total = available_memory(proc, groups) / GIB, memory_limit(proc, groups)
    found = f"{available_gib:.1f} GiB available of {total.size / GIB:.1f} GiB, {total.source}"
    processes, loaders = plan.processes(), plan.loaders()
    need = processes * (_PER_RANK + loaders * _PER_LOADER)
    if available_gib >= need:
        yield Finding("memory", "ok", found)
        return
    started = f"{processes} process{'es' if processes > 1 else ''}" + (
        f" with {loaders} loaders each" if loaders else ""
    )
    # The need is an estimate, so only a clear lack is a failure.
    fails = available_gib < need / 2
    remedy = "--data.init_args.num_workers 0, or " if loaders else ""
    yield Finding(
        "memory", "fail" if fails else "warn", f"{found}; {started} need about {need:.1f} GiB before their model",
        "when memory runs out, Linux kills a process: `Killed`, exit code 137",
        remedy + "more memory: sbatch --mem, docker run --memory, or end other programs (ps aux --sort=-rss | head)",
    )  # fmt: skip


def check_shared_memory(plan: LaunchPlan, folder: Path = Path("/dev/shm")) -> Iterator[Finding]:
    """Check that shared memory has space for the data of loader workers and NCCL.

    Args:
        plan: ranks on this node and loader workers of each.
        folder: file system of shared memory.
    """
    check, loaders = "shared memory", plan.processes() * plan.loaders()
    several = loaders > 0 or plan.processes() > 1 or isinstance(plan.workers, str)
    why = (
        "loaders pass batches through it, and NCCL data between GPUs: if full, a loader dies with `Bus error`, or "
        "`DataLoader worker is killed by signal`"
    )
    remedy = "docker run --shm-size=8g (Kubernetes: an emptyDir with medium: Memory on /dev/shm)"
    if loaders:
        remedy += ", or --data.init_args.num_workers 0"
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        problem = f"{folder} does not exist" if not folder.is_dir() else f"{folder} cannot be written to"
        yield Finding(check, "fail" if several else "warn", problem, why, remedy)
        return
    state = os.statvfs(folder)
    size, free = state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
    found = f"{format_bytes(free)} free of {format_bytes(size)} in {folder}"
    need = loaders * _SHARED_PER_LOADER
    if free < 128 * MIB:
        yield Finding(check, "fail" if several else "warn", found, why, remedy)
    elif free < need:
        yield Finding(check, "warn", f"{found}; {loaders} loaders can need {format_bytes(need)}", why, remedy)
    else:
        yield Finding(check, "ok", found)
