"""Checks the resource limits that the shell, the login or the container sets (`ulimit -a`)."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from commands.doctor.check import Finding, Status
from commands.doctor.launch_plan import LaunchPlan

_FILES = 4096
"""Open files of a rank with loaders, logs, sockets of many peers and memory-mapped data, at most."""
_MIN_FILES = 512
_TASKS_PER_PROCESS = 64
"""Threads and processes that a rank or a loader worker starts."""
_LIMITS_FILE = "for good: /etc/security/limits.conf, LimitNOFILE= of the service, or docker run --ulimit"


def check_limits(
    plan: LaunchPlan,
    proc: Path = Path("/proc/self"),
    groups: Path = Path("/sys/fs/cgroup"),
    infiniband: Path = Path("/sys/class/infiniband"),
    core_pattern: Path = Path("/proc/sys/kernel/core_pattern"),
) -> Iterator[Finding]:
    """Check the limits of this process, which its children inherit.

    Args:
        plan: ranks on this node and loader workers of each.
        proc: directory in /proc that names the control groups of the process.
        groups: mount point of the control groups.
        infiniband: directory of the RDMA adapters.
        core_pattern: file with the pattern of core files.
    """
    findings = [
        *_open_files(),
        *_tasks(plan, proc, groups),
        *_locked_memory(plan, infiniband),
        *_file_size(),
        *_address_space(),
        *_core_dumps(core_pattern),
    ]
    if findings:
        yield from findings
        return
    summary = f"{_soft(resource.RLIMIT_NOFILE)} open files, {_soft(resource.RLIMIT_NPROC)} processes"
    yield Finding("limits", "ok", f"{summary}, {_soft(resource.RLIMIT_MEMLOCK, _bytes)} of locked memory")


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES:
        recommended = 65536 if hard < 0 else min(hard, 65536)
        remedy = f"ulimit -n {recommended}" if recommended > soft else f"raise the hard limit of {hard}"
        found = f"{soft} open files (ulimit -n; at most {_format_limit(hard)})"
        yield Finding(
            "limits", "fail" if soft < _MIN_FILES else "warn", found,
            "every batch of a loader, every peer and every log is an open file: `Too many open files`",
            f"{remedy}  # {_LIMITS_FILE}",
        )  # fmt: skip


def _tasks(plan: LaunchPlan, proc: Path, groups: Path) -> Iterator[Finding]:
    need = plan.processes() * (1 + plan.loaders()) * _TASKS_PER_PROCESS
    why = "threads count too: `can't start new thread`, `Resource temporarily unavailable`, a loader that dies at start"
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= soft < need:
        found = (
            f"{soft} processes and threads for this user (ulimit -u; at most {_format_limit(hard)}), {need} may be "
            "needed"
        )
        yield Finding("limits", "fail" if soft * 4 < need else "warn", found, why, f"ulimit -u {max(need, 4096)}")
    for limit, present in _tasks_of_groups(proc, groups):
        if limit - present >= need:
            continue
        found = f"a control group allows {limit} processes and threads, {present} exist, {need} may be needed"
        remedy = "docker run --pids-limit=-1 (Kubernetes: podPidsLimit of the kubelet)"
        yield Finding("limits", "warn", found, why, remedy)


def _tasks_of_groups(proc: Path, groups: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, current number) of the control groups of this process and of their parents."""
    membership = (proc / "cgroup").read_text() if (proc / "cgroup").exists() else ""
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "pids" not in controllers.split(","):
            continue
        # Version 1 of control groups has a hierarchy for each controller, version 2 a single one without names.
        mount = groups / "pids" if controllers else groups
        group = mount / path.lstrip("/")
        # The limits of all parents apply as well.
        for folder in (group, *group.parents):
            if (folder / "pids.max").is_file():
                limit, present = ((folder / name).read_text().strip() for name in ("pids.max", "pids.current"))
                if limit.isdigit():
                    yield int(limit), int(present)
            if folder == mount:
                break


def _locked_memory(plan: LaunchPlan, infiniband: Path) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft >= 0 and infiniband.is_dir() and any(infiniband.iterdir()):
        several = (plan.nodes or 1) > 1
        found = f"{_bytes(soft)} of locked memory (ulimit -l), on a machine with InfiniBand"
        yield Finding(
            "limits", "fail" if several else "warn", found,
            "RDMA locks the memory that it sends: NCCL ends with `ibv_reg_mr failed: Cannot allocate memory`",
            "ulimit -l unlimited  # for good: /etc/security/limits.conf, or docker run --ulimit memlock=-1",
        )  # fmt: skip


def _file_size() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft >= 0:
        why = "a larger checkpoint cannot be written: `File too large`"
        status: Status = "fail" if soft < 1 << 30 else "warn"
        yield Finding("limits", status, f"files of at most {_bytes(soft)} (ulimit -f)", why, "ulimit -f unlimited")


def _address_space() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft >= 0:
        why = "CUDA and memory-mapped data reserve more addresses than memory: `Cannot allocate memory`"
        yield Finding("limits", "warn", f"{_bytes(soft)} of addresses (ulimit -v)", why, "ulimit -v unlimited")


def _core_dumps(core_pattern: Path) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    pattern = core_pattern.read_text().strip() if core_pattern.exists() else "|"
    # A pattern that begins with | pipes the dump to a program, which decides how much it keeps.
    if soft < 0 and not pattern.startswith("|"):
        yield Finding(
            "limits", "warn", f"core dumps of any size (ulimit -c), into files named {pattern!r}",
            "a crashing process writes its whole memory to disk first: minutes, and perhaps a full disk",
            "ulimit -c 0",
        )  # fmt: skip


def _soft(which: int, to_text: Callable[[int], str] | None = None) -> str:
    soft, _ = resource.getrlimit(which)
    return (to_text or _format_limit)(soft)


def _format_limit(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _bytes(limit: int) -> str:
    if limit < 0:
        return "unlimited"
    power = max(0, min(3, (limit.bit_length() - 1) // 10))
    return f"{limit / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"
