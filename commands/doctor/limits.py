"""Limits that the shell, the login or the container sets (`ulimit -a`)."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from commands.doctor.finding import Finding, Status
from commands.doctor.plan import Plan

_FILES = 4096
"""Open files that a process with loaders, logs, sockets of many peers and memory-mapped data stays below."""
_FEWEST_FILES = 512
_TASKS_OF_A_PROCESS = 64
"""Threads and processes that a training process or a loader starts."""
_LIMITS_FILE = "for good: /etc/security/limits.conf, LimitNOFILE= of the service, or docker run --ulimit"


def limits(
    plan: Plan,
    proc: Path = Path("/proc/self"),
    groups: Path = Path("/sys/fs/cgroup"),
    infiniband: Path = Path("/sys/class/infiniband"),
    core_pattern: Path = Path("/proc/sys/kernel/core_pattern"),
) -> Iterator[Finding]:
    """Of this process, which the processes that it starts inherit.

    Args:
        plan: processes on this node and loaders of each.
        proc: the folder that says which control groups the process is in.
        groups: where these are mounted.
        infiniband: the folder of the machine's adapters for RDMA.
        core_pattern: where the memory of a crashed process is written.
    """
    found = [
        *_open_files(),
        *_tasks(plan, proc, groups),
        *_locked_memory(plan, infiniband),
        *_file_size(),
        *_address_space(),
        *_core_dumps(core_pattern),
    ]
    if found:
        yield from found
        return
    words = f"{_words(resource.RLIMIT_NOFILE)} open files, {_words(resource.RLIMIT_NPROC)} processes"
    yield Finding("limits", "ok", f"{words}, {_words(resource.RLIMIT_MEMLOCK, _bytes)} of locked memory")


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES:
        wanted = 65536 if hard < 0 else min(hard, 65536)
        remedy = f"ulimit -n {wanted}" if wanted > soft else f"raise the hard limit of {hard}"
        found = f"{soft} open files (ulimit -n; at most {_count(hard)})"
        yield Finding(
            "limits", "fail" if soft < _FEWEST_FILES else "warn", found,
            "every batch that a loader hands over, every peer and every log is an open file: `Too many open files`",
            f"{remedy}  # {_LIMITS_FILE}",
        )  # fmt: skip


def _tasks(plan: Plan, proc: Path, groups: Path) -> Iterator[Finding]:
    need = plan.processes() * (1 + plan.loaders()) * _TASKS_OF_A_PROCESS
    why = "threads count too: `can't start new thread`, `Resource temporarily unavailable`, a loader that dies at start"
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= soft < need:
        words = f"{soft} processes and threads for this user (ulimit -u; at most {_count(hard)}), {need} may be needed"
        yield Finding("limits", "fail" if soft * 4 < need else "warn", words, why, f"ulimit -u {max(need, 4096)}")
    for limit, present in _tasks_of_groups(proc, groups):
        if limit - present >= need:
            continue
        words = f"a control group allows {limit} processes and threads, {present} are there, {need} may be needed"
        remedy = "docker run --pids-limit=-1 (Kubernetes: podPidsLimit of the kubelet)"
        yield Finding("limits", "warn", words, why, remedy)


def _tasks_of_groups(proc: Path, groups: Path) -> Iterator[tuple[int, int]]:
    """(limit, present number) of the groups that this process is in and of those around them."""
    membership = (proc / "cgroup").read_text() if (proc / "cgroup").exists() else ""
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "pids" not in controllers.split(","):
            continue
        mount = groups / "pids" if controllers else groups
        own = mount / path.lstrip("/")
        for folder in (own, *own.parents):
            if (folder / "pids.max").is_file():
                limit, present = ((folder / name).read_text().strip() for name in ("pids.max", "pids.current"))
                if limit.isdigit():
                    yield int(limit), int(present)
            if folder == mount:
                break


def _locked_memory(plan: Plan, infiniband: Path) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft >= 0 and infiniband.is_dir() and any(infiniband.iterdir()):
        several = (plan.nodes or 1) > 1
        found = f"{_bytes(soft)} of locked memory (ulimit -l), and there is InfiniBand"
        yield Finding(
            "limits", "fail" if several else "warn", found,
            "RDMA locks the memory that it sends from: NCCL ends with `ibv_reg_mr failed: Cannot allocate memory`",
            "ulimit -l unlimited  # for good: /etc/security/limits.conf, or docker run --ulimit memlock=-1",
        )  # fmt: skip


def _file_size() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft >= 0:
        why = "a checkpoint that is larger cannot be written: `File too large`"
        status: Status = "fail" if soft < 1 << 30 else "warn"
        yield Finding("limits", status, f"files of at most {_bytes(soft)} (ulimit -f)", why, "ulimit -f unlimited")


def _address_space() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft >= 0:
        why = "CUDA reserves more addresses than there is memory, as memory-mapped data do: `Cannot allocate memory`"
        yield Finding("limits", "warn", f"{_bytes(soft)} of addresses (ulimit -v)", why, "ulimit -v unlimited")


def _core_dumps(core_pattern: Path) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    pattern = core_pattern.read_text().strip() if core_pattern.exists() else "|"
    if soft < 0 and not pattern.startswith("|"):
        yield Finding(
            "limits", "warn", f"core dumps of any size (ulimit -c), into files named {pattern!r}",
            "a process that crashes first writes its whole memory to disk: minutes, and a full disk for the others",
            "ulimit -c 0",
        )  # fmt: skip


def _words(which: int, write: Callable[[int], str] | None = None) -> str:
    soft, _ = resource.getrlimit(which)
    return (write or _count)(soft)


def _count(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _bytes(limit: int) -> str:
    if limit < 0:
        return "unlimited"
    power = max(0, min(3, (limit.bit_length() - 1) // 10))
    return f"{limit / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"
