"""How much memory a process of this machine uses and may use, and whether the kernel has killed one for it.

The limit that counts is the least of the machine's memory, of the control groups that the process is in (a container, a
SLURM job; cgroup v2, man 7 cgroups, and v1), and of what `ulimit` says.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC, _GROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 writes the largest whole number of pages where there is no limit."""


class Limit(NamedTuple):
    """The most that this process, or its group, may have."""

    size: int  # bytes
    source: str  # what sets it


def resident() -> int:
    """Bytes of memory that this process has at the moment."""
    return psutil.Process().memory_info().rss


def peak_resident() -> int:
    """The most bytes of memory that this process has ever had."""
    try:
        import resource
    except ImportError:  # Windows, which knows the figure by another name
        return psutil.Process().memory_info().peak_wset  # type: ignore[attr-defined]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def limit(proc: Path = _PROC, groups: Path = _GROUPS) -> Limit:
    """What ends first."""
    found = [Limit(psutil.virtual_memory().total, "the machine's memory"), *_of_groups(proc, groups), *_of_ulimit()]
    return min(found, key=lambda limit: limit.size)


def available(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """Bytes that this process could still get: of what it shares with others, and of what `ulimit` leaves to it."""
    return min([available_to_all(proc, groups), *(max(0, rest) for _, rest in left_by_ulimit(proc))])


def available_to_all(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """Bytes that this process and those beside it could still get: of the machine, and of the control groups."""
    rooms = [psutil.virtual_memory().available]
    for folder in memory_groups(proc, groups):
        most = _number(folder, "memory.max", "memory.limit_in_bytes")
        used = _number(folder, "memory.current", "memory.usage_in_bytes")
        if most is not None and used is not None and most < _NO_LIMIT:
            # What files have in the cache is given back first.
            rooms.append(max(0, most - used + _counter(folder, "memory.stat", "inactive_file")))
    return min(rooms)


def oom_kills(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """How many processes of this one's control group the kernel has killed because memory ran out.

    A group has a limit of its own or stands under one; the least group above the process that has one is counted as
    well, as each task of a SLURM job has its own. 0 where there are no control groups.
    """
    kills = 0
    for folder in memory_groups(proc, groups):
        events = "memory.events" if (folder / "memory.events").exists() else "memory.oom_control"
        kills = max(kills, _counter(folder, events, "oom_kill"))
        most = _number(folder, "memory.max", "memory.limit_in_bytes")
        if (most is not None and most < _NO_LIMIT) or folder.name.endswith(".slice"):
            break  # beyond are other people's processes
    return kills


def kills_counter(proc: Path = _PROC, groups: Path = _GROUPS) -> str:
    """Which counter `oom_kills` reads: another control group, and another start of the machine, has another.

    Nothing where there is none.
    """
    folder = next(memory_groups(proc, groups), None)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return "" if folder is None else f"{boot} {folder} {folder.stat().st_ino}"
    except OSError:
        return ""


def killed_since(before: int, since: str = "the run began") -> str:
    """What to say, on a line of its own, when `oom_kills` has been more than `before` since; else nothing."""
    kills = oom_kills() - before
    if kills <= 0:
        return ""
    most, source = limit()
    return (
        f"\nthe kernel's out-of-memory killer has ended {kills} process(es) of this container or job since "
        f"{since}: memory ran out at {most / 2**30:.2f} GiB ({source}). First change: give it more, or "
        "--data.init_args.num_workers 0 (each worker has memory of its own); on CPUs then a smaller "
        "--data.init_args.micro_batch_size, which keeps the global batch"
    )


def memory_groups(proc: Path = _PROC, groups: Path = _GROUPS) -> Iterator[Path]:
    """Folders of the control groups of this process that count memory: its own first, the ones it lies in after it."""
    try:
        lines = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = groups / "memory" if controllers else groups
        own = mount / path.lstrip("/")
        if not own.is_dir() or ".." in path:  # a container sees its own group as the root
            own = mount
        for folder in (own, *own.parents):
            if (folder / "memory.events").is_file() or (folder / "memory.oom_control").is_file():
                yield folder
            if folder == mount:
                break


def status(proc: Path = _PROC) -> dict[str, int]:
    """Linux's own figures of this process in bytes: VmData, RssAnon, ... (man 5 proc_pid_status); elsewhere none."""
    try:
        lines = (proc / "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines if line.startswith(("Vm", "Rss")))
    return {name.rstrip(":"): int(number) * 1024 for name, number, _ in words}


def left_by_ulimit(proc: Path = _PROC) -> Iterator[tuple[str, int]]:
    """(name of the limit in `resource`, bytes that this process may still take) of each that is set; Linux."""
    used = status(proc)
    for name, _, counted, size in _ulimits():
        if counted in used:
            yield name, size - used[counted]


def _of_groups(proc: Path, groups: Path) -> Iterator[Limit]:
    for folder in memory_groups(proc, groups):
        most = _number(folder, "memory.max", "memory.limit_in_bytes")
        if most is not None and most < _NO_LIMIT:
            yield Limit(most, f"the limit of the container or job, {folder}")


def _of_ulimit() -> Iterator[Limit]:
    for _, letter, _, size in _ulimits():
        yield Limit(size, f"ulimit -{letter}, which counts addresses, used or not")


def _ulimits() -> Iterator[tuple[str, str, str, int]]:
    """(name, letter of the shell's ulimit, figure of `status` that it is held against, bytes) of those that are set."""
    try:
        import resource
    except ImportError:
        return
    for name, letter, counted in (("RLIMIT_AS", "v", "VmSize"), ("RLIMIT_DATA", "d", "VmData")):
        if hasattr(resource, name):
            soft, _ = resource.getrlimit(getattr(resource, name))
            if soft != resource.RLIM_INFINITY:
                yield name, letter, counted, soft


def _number(folder: Path, *names: str) -> int | None:
    """Of the first file that there is; None for `max`, and where there is none."""
    for name in names:
        try:
            text = (folder / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _counter(folder: Path, name: str, key: str) -> int:
    """Of a file with one `key number` a line; 0 where it is not there."""
    try:
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [key]), 0)
