"""How many cores this process may use, and how many loader workers that leaves room for.

`os.cpu_count()` is the machine's. In a container or a SLURM job a process has fewer: by its affinity, and by the CPU
quota of its control group (cgroup v1 and v2, as in the Linux kernel's Documentation/admin-guide). Workers beyond that
only take turns.
"""

import os
from collections.abc import Iterator
from pathlib import Path

MOST_WORKERS = 8
"""Of each training process: more seldom load faster, and each holds its own copy of what it reads with."""


def usable_cores(
    affinity: int | None = None, groups: Path = Path("/sys/fs/cgroup"), own_groups: Path = Path("/proc/self/cgroup")
) -> float:
    """Cores that this process and its children may use together; a quota may be of a part of one.

    Args:
        affinity: cores that the process may run on; None asks the system.
        groups: where the control groups are mounted.
        own_groups: the file that says which ones this process is in.
    """
    if affinity is None:
        known = hasattr(os, "sched_getaffinity")  # Linux alone
        affinity = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return min([float(affinity), *_quotas(groups, own_groups)])


def workers_for(cores: float, processes: int, computing: int) -> int:
    """Loader workers of each training process.

    Args:
        cores: that all training processes of this machine share.
        processes: training processes of this machine.
        computing: cores that a training process computes with itself: its threads, or the one that feeds a GPU.
    """
    return max(0, min(MOST_WORKERS, int(cores / processes) - computing))


def _quotas(groups: Path, own_groups: Path) -> Iterator[float]:
    """Of this process's control groups and of those around them: each of them holds."""
    try:
        lines = own_groups.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux, or /proc is hidden
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts, quota = [groups, groups / "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, quota = [groups / controllers, groups / "cpu"], _quota_v1
        else:
            continue
        for mount in mounts:
            # In a container the mount often is the process's own group, whose path from outside is not there.
            for group in (mount / path.lstrip("/"), *(mount / path.lstrip("/")).parents):
                if (found := quota(group)) is not None:
                    yield found
                if group == mount:
                    break


def _quota_v2(group: Path) -> float | None:
    quota = _words(group / "cpu.max")  # "max 100000", or "150000 100000": microseconds of a period
    return None if len(quota) != 2 or quota[0] == "max" else int(quota[0]) / int(quota[1])


def _quota_v1(group: Path) -> float | None:
    quota, period = _words(group / "cpu.cfs_quota_us"), _words(group / "cpu.cfs_period_us")
    return None if not quota or not period or int(quota[0]) <= 0 else int(quota[0]) / int(period[0])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []
