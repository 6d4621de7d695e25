"""Counts the CPUs that this process may use, and the loader workers that follow from it.

`os.cpu_count()` counts the CPUs of the machine. In a container or a SLURM job a process has fewer, limited by its
affinity and by the CPU quota of its control group (cgroup v1 and v2, Linux kernel Documentation/admin-guide). More
workers than CPUs only take turns.
"""

import os
from collections.abc import Iterator
from pathlib import Path

MAX_WORKERS = 8
"""Largest number of workers of each training process: more are rarely faster, and each has its own copy of the data."""


_ALWAYS_ALLOWED, _PER_CORE = 64, 4
"""Processes or threads that any machine may start, and those for each core."""


def affinity_cores() -> int:
    """Return the number of cores in the CPU affinity of this process (taskset, cpusets, SLURM)."""
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux only
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def available_cpus(
    affinity: int | None = None, groups: Path = Path("/sys/fs/cgroup"), own_groups: Path = Path("/proc/self/cgroup")
) -> float:
    """Return the CPUs that this process and its children may use together. A quota may be fractional.

    Args:
        affinity: number of CPUs that the process may run on; None reads it from the system.
        groups: mount point of the control groups.
        own_groups: file that lists the control groups of this process.
    """
    affinity = affinity_cores() if affinity is None else affinity
    return min([float(affinity), *_quotas(groups, own_groups)])


def check_process_count(key: str, number: int) -> None:
    """Check that this machine can run a number of processes or threads.

    Far more of them exhaust it before any of them reports an error.

    Args:
        key: dotted key, for the message.
        number: processes or threads.

    Raises:
        ValueError: there are more than 64, and more than 4 a core.
    """
    cores = available_cpus()
    max_number = max(_ALWAYS_ALLOWED, int(_PER_CORE * cores))
    if number > max_number:
        raise ValueError(f"{key} is {number}, expected at most {max_number} on a machine with {cores:g} cores")


def num_loader_workers(cores: float, processes: int, computing: int) -> int:
    """Return the number of loader workers of each training process.

    Args:
        cores: CPUs that all training processes of this machine share.
        processes: number of training processes of this machine.
        computing: CPUs that a training process computes with: its threads, or the thread that feeds a GPU.
    """
    return max(0, min(MAX_WORKERS, int(cores / processes) - computing))


def _quotas(groups: Path, own_groups: Path) -> Iterator[float]:
    """Iterate over the quotas of this process's control groups and of their parents. All of them apply."""
    try:
        lines = own_groups.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux, or /proc is hidden
        return
    for line in lines:
        # `ID:CONTROLLERS:PATH`; version 2 has an empty list of controllers.
        _, controllers, path = line.split(":", 2)
        if not controllers:
            # Version 2 alone, or beside version 1 in the folder `unified`.
            mounts, read_quota = [groups, groups / "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, read_quota = [groups / controllers, groups / "cpu"], _quota_v1
        else:
            continue
        for mount in mounts:
            # A container often mounts its own group as the root, where the path of the host does not exist.
            for group in (mount / path.lstrip("/"), *(mount / path.lstrip("/")).parents):
                if (quota := read_quota(group)) is not None:
                    yield quota
                if group == mount:
                    break


def _quota_v2(group: Path) -> float | None:
    words = _read_words(group / "cpu.max")  # "max 100000", or "150000 100000": microseconds per period
    return None if len(words) != 2 or words[0] == "max" else int(words[0]) / int(words[1])


def _quota_v1(group: Path) -> float | None:
    quota, period = _read_words(group / "cpu.cfs_quota_us"), _read_words(group / "cpu.cfs_period_us")
    return None if not quota or not period or int(quota[0]) <= 0 else int(quota[0]) / int(period[0])


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []
