"""Reads the memory of this process: its use, its limit, and kills by the kernel's out-of-memory killer.

The limit is the smallest of the machine's memory, the limits of the process's control groups (a container, a SLURM job;
cgroup v2, man 7 cgroups, and v1), and the limits of `ulimit`. All sizes are bytes. The arguments `proc` and `groups`
are the folder of the process and the mount point of the control groups; tests replace them.
"""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from engine.system.byte_size import format_gib

_PROC, _GROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Larger values mean that there is no limit: cgroup v1 then reports the largest number of whole pages."""


class Limit(NamedTuple):
    """A limit for the memory of this process or its group."""

    size: int
    """Bytes."""

    source: str
    """What sets the limit, for messages."""


def resident_memory() -> int:
    """Return the resident memory of this process, in bytes."""
    return psutil.Process().memory_info().rss


def peak_resident_memory() -> int:
    """Return the peak of the resident memory of this process, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return psutil.Process().memory_info().peak_wset  # type: ignore[attr-defined]  # on Windows
    # Kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_limit(proc: Path = _PROC, groups: Path = _GROUPS) -> Limit:
    """Return the smallest limit."""
    limits = [
        Limit(psutil.virtual_memory().total, "the machine's memory"),
        *_limits_of_groups(proc, groups),
        *_limits_of_ulimit(),
    ]
    return min(limits, key=lambda limit: limit.size)


def available_memory(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """Return the bytes that this process can still allocate, within its groups and its `ulimit`."""
    return min(
        [available_cgroup_memory(proc, groups), *(max(0, remaining) for _, remaining in remaining_under_ulimit(proc))]
    )


def available_cgroup_memory(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """Return the bytes that all processes of this process's groups together can still allocate."""
    remaining = [psutil.virtual_memory().available]
    for folder in memory_groups(proc, groups):
        limit = _read_limit(folder, "memory.max", "memory.limit_in_bytes")
        used = _read_limit(folder, "memory.current", "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _NO_LIMIT:
            # The kernel frees the file cache first.
            remaining.append(max(0, limit - used + _read_counter(folder, "memory.stat", "inactive_file")))
    return min(remaining)


def oom_kills(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """Return the number of processes of this process's control group that the out-of-memory killer has ended.

    Each task of a SLURM job has a group without a limit of its own, so parent groups count too, up to the first with a
    limit. Returns 0 without control groups.
    """
    kills = 0
    for folder in memory_groups(proc, groups):
        events = "memory.events" if (folder / "memory.events").exists() else "memory.oom_control"
        kills = max(kills, _read_counter(folder, events, "oom_kill"))
        limit = _read_limit(folder, "memory.max", "memory.limit_in_bytes")
        if (limit is not None and limit < _NO_LIMIT) or folder.name.endswith(".slice"):
            break  # groups above contain other users' processes
    return kills


def oom_counter_id(proc: Path = _PROC, groups: Path = _GROUPS) -> str:
    """Identify the counter that `oom_kills` reads. It changes with the control group and with a reboot.

    Empty without control groups.
    """
    folder = next(memory_groups(proc, groups), None)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return "" if folder is None else f"{boot} {folder} {folder.stat().st_ino}"
    except OSError:
        return ""


def oom_kill_message(before: int, since: str = "the run began") -> str:
    """Return a line for the log if `oom_kills` exceeds `before`, else an empty string."""
    kills = oom_kills() - before
    if kills <= 0:
        return ""
    limit, source = memory_limit()
    return (
        f"\nthe kernel's out-of-memory killer has ended {kills} process(es) of this container or job since "
        f"{since}: memory ran out at {format_gib(limit)} ({source}). Raise the limit, or set "
        "--data.init_args.num_workers 0 (each worker has memory of its own); on CPUs also try a smaller "
        "--data.init_args.micro_batch_size, which keeps the global batch"
    )


def memory_groups(proc: Path = _PROC, groups: Path = _GROUPS) -> Iterator[Path]:
    """Iterate over the folders of this process's memory control groups, from its own to the root."""
    try:
        lines = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        # `ID:CONTROLLERS:PATH`; version 2 has an empty list of controllers.
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = groups / "memory" if controllers else groups
        group_folder = mount / path.lstrip("/")
        if not group_folder.is_dir() or ".." in path:  # a container sees its own group as the root
            group_folder = mount
        for folder in (group_folder, *group_folder.parents):
            if (folder / "memory.events").is_file() or (folder / "memory.oom_control").is_file():
                yield folder
            if folder == mount:
                break


def read_proc_status(proc: Path = _PROC) -> dict[str, int]:
    """Return {VmData, RssAnon, ...: bytes} of this process (man 5 proc_pid_status). Empty outside of Linux."""
    try:
        lines = (proc / "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines if line.startswith(("Vm", "Rss")))
    return {name.rstrip(":"): int(number) * 1024 for name, number, _ in words}


def remaining_under_ulimit(proc: Path = _PROC) -> Iterator[tuple[str, int]]:
    """Iterate over (name of the limit in `resource`, bytes that remain), of each limit that is set. Linux only."""
    used = read_proc_status(proc)
    for name, _, counted, size in _ulimits():
        if counted in used:
            yield name, size - used[counted]


def _limits_of_groups(proc: Path, groups: Path) -> Iterator[Limit]:
    for folder in memory_groups(proc, groups):
        limit = _read_limit(folder, "memory.max", "memory.limit_in_bytes")
        if limit is not None and limit < _NO_LIMIT:
            yield Limit(limit, f"the limit of the container or job, {folder}")


def _limits_of_ulimit() -> Iterator[Limit]:
    for _, letter, _, size in _ulimits():
        yield Limit(size, f"ulimit -{letter}, which counts addresses, used or not")


def _ulimits() -> Iterator[tuple[str, str, str, int]]:
    """Iterate over (name, letter of the shell's ulimit, limited key of `read_proc_status`, bytes) of each limit."""
    try:
        import resource
    except ImportError:
        return
    for name, letter, counted in (("RLIMIT_AS", "v", "VmSize"), ("RLIMIT_DATA", "d", "VmData")):
        if hasattr(resource, name):
            soft, _ = resource.getrlimit(getattr(resource, name))
            if soft != resource.RLIM_INFINITY:
                yield name, letter, counted, soft


def _read_limit(folder: Path, *names: str) -> int | None:
    """Return the number in the first file that exists; None for `max`, or if there is no file."""
    for name in names:
        try:
            text = (folder / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _read_counter(folder: Path, name: str, key: str) -> int:
    """Return the number of a key in a file of `key number` lines; 0 if it is missing."""
    try:
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [key]), 0)


def release_free_memory() -> None:
    """Return freed memory of this process to the system, which glibc keeps between blocks in use; elsewhere nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
