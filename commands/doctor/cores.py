"""Cores: how many this process may use, and whether processes, loaders and threads share them out well."""

import os
from collections.abc import Iterator, Mapping

from commands.doctor.finding import Finding
from commands.doctor.plan import Plan


def allowed_cores() -> int:
    """Cores that the operating system lets this process run on (taskset, cpusets, SLURM)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores(plan: Plan, machine: int, affinity: int, usable: float) -> Iterator[Finding]:
    """Whether there is a core for each process, and one for each of its loaders.

    Args:
        plan: processes on this node and loaders of each.
        machine: cores of the machine.
        affinity: those that the process may run on.
        usable: those whose time a control group's quota leaves it.
    """
    found = f"{affinity} of {machine} cores may be used" if affinity < machine else f"{machine} cores"
    if usable < affinity:
        found += f", of which a control group's quota leaves {usable:g}"
    processes, loaders = plan.processes(), plan.loaders()
    if processes > usable:
        yield Finding(
            "cores", "warn", f"{found}; {processes} processes are to share them",
            "each process needs a core of its own: they take turns, and all wait for the slowest",
            f"--trainer.devices {max(1, int(usable))}  # or ask the scheduler for {processes} cores "
            f"(sbatch --cpus-per-task, docker run --cpus)",
        )  # fmt: skip
    elif processes * (1 + loaders) > usable and loaders:
        fitting = max(0, int(usable) // processes - 1)
        yield Finding(
            "cores", "warn", f"{found}; {processes} processes with {loaders} loaders each are to share them",
            "loaders that take the cores from the training make it slower, not faster",
            f"--data.init_args.num_workers {fitting}  # or {processes * (1 + loaders)} cores",
        )  # fmt: skip
    else:
        yield Finding("cores", "ok", found)


def threads_started(processes: int, affinity: int, environ: Mapping[str, str]) -> int:
    """Threads with which each of the training processes of this node computes.

    Where OMP_NUM_THREADS is not set Lightning shares the cores out, whoever has started the processes
    (`_set_num_threads_if_needed` of its launchers); it knows of affinity, but of no control group's quota.
    """
    first = environ.get("OMP_NUM_THREADS", "").strip().split(",")[0]
    return int(first) if first.isdigit() and int(first) else max(1, affinity // processes)


def threads(plan: Plan, affinity: int, usable: float, environ: Mapping[str, str]) -> Iterator[Finding]:
    """OMP_NUM_THREADS against cores and processes: PyTorch starts so many threads, in each process.

    More processes than cores are the business of `cores`: fewer than one thread cannot be had.
    """
    processes = plan.processes()
    each = max(1, int(usable) // processes)
    remedy = f"export OMP_NUM_THREADS={each}"
    given = environ.get("OMP_NUM_THREADS", "").strip()
    shared = f"{processes} process{'es' if processes > 1 else ''} on {usable:g} cores"
    crowded = "more threads than cores take turns, and an operation waits for its slowest thread: several times slower"
    if not given:
        started = threads_started(processes, affinity, environ)
        found = f"OMP_NUM_THREADS is not set: {started} thread{'s' if started > 1 else ''} in each of {shared}"
        if started > each:
            yield Finding("threads", "warn", found, crowded, remedy)
        else:
            yield Finding("threads", "ok", found)
        return
    first = given.split(",")[0]  # a list gives the threads of nested regions
    if not first.isdigit() or int(first) == 0:
        why = "it is no number from 1 on: it is passed over, and every core gets a thread in every process"
        yield Finding("threads", "warn", f"OMP_NUM_THREADS={given!r}", why, remedy)
    elif int(first) > each:
        yield Finding("threads", "warn", f"OMP_NUM_THREADS={given} with {shared}", crowded, remedy)
    elif plan.accelerator == "cpu" and int(first) * processes * 2 <= usable:
        why = "on the CPU the threads compute: the other cores idle"
        yield Finding("threads", "warn", f"OMP_NUM_THREADS={given} with {shared}", why, remedy)
    else:
        yield Finding("threads", "ok", f"OMP_NUM_THREADS={given}, {shared}")
    bind = environ.get("OMP_PROC_BIND", "").lower() in ("true", "close", "spread", "master", "primary")
    if (bind or environ.get("GOMP_CPU_AFFINITY")) and processes > 1:
        name = "OMP_PROC_BIND" if bind else "GOMP_CPU_AFFINITY"
        why = "unless each process has cores of its own, all processes bind their threads to the same cores"
        yield Finding("threads", "warn", f"{name}={environ[name]} with {shared}", why, f"unset {name}")
