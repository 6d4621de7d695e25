"""Checks the CPU: cores for ranks and loader workers, threads of each rank."""

from collections.abc import Iterator, Mapping

from commands.doctor.check import Finding
from commands.doctor.launch_plan import LaunchPlan


def check_cores(plan: LaunchPlan, machine: int, affinity: int, usable: float) -> Iterator[Finding]:
    """Check that there is a core for each rank and each loader worker.

    Args:
        plan: ranks on this node and loader workers of each.
        machine: cores of the machine.
        affinity: cores in the CPU affinity.
        usable: cores that the control group's CPU quota allows.
    """
    found = f"{affinity} of {machine} cores may be used" if affinity < machine else f"{machine} cores"
    if usable < affinity:
        found += f", of which a control group's quota leaves {usable:g}"
    processes, loaders = plan.processes(), plan.loaders()
    if processes > usable:
        yield Finding(
            "cores", "warn", f"{found}; {processes} processes would share them",
            "each rank needs its own core; ranks that share one are slow, and all wait for the slowest",
            f"--trainer.devices {max(1, int(usable))}  # or ask the scheduler for {processes} cores "
            f"(sbatch --cpus-per-task, docker run --cpus)",
        )  # fmt: skip
    elif processes * (1 + loaders) > usable and loaders:
        # A core for the rank itself; the others are for its loaders.
        fitting = max(0, int(usable) // processes - 1)
        yield Finding(
            "cores", "warn", f"{found}; {processes} processes with {loaders} loaders each would share them",
            "loaders that use the cores of the training make it slower, not faster",
            f"--data.init_args.num_workers {fitting}  # or {processes * (1 + loaders)} cores",
        )  # fmt: skip
    else:
        yield Finding("cores", "ok", found)


def threads_started(processes: int, affinity: int, environ: Mapping[str, str]) -> int:
    """Return the number of threads of each rank of this node.

    Without OMP_NUM_THREADS Lightning divides the cores by the ranks (`_set_num_threads_if_needed` of its launchers); it
    considers CPU affinity, but no quota of a control group.
    """
    return _parse_threads(environ.get("OMP_NUM_THREADS", "")) or max(1, affinity // processes)


def requested_threads(plan: LaunchPlan, environ: Mapping[str, str]) -> int | None:
    """Return the threads of each rank by `--threads` or OMP_NUM_THREADS; None if neither is a number."""
    return plan.threads or _parse_threads(environ.get("OMP_NUM_THREADS", "")) or None


def _parse_threads(variable: str) -> int:
    """Return the threads of a value of OMP_NUM_THREADS; 0 if it is not a positive number."""
    first = variable.strip().split(",")[0]  # a list gives the threads of nested regions
    return int(first) if first.isdecimal() else 0


def check_threads(
    plan: LaunchPlan, affinity: int, usable: float, environ: Mapping[str, str], on_cpu: bool = False
) -> Iterator[Finding]:
    """Check the threads that PyTorch starts in each rank, `--threads` or OMP_NUM_THREADS, against the cores.

    `check_cores` reports more ranks than cores.

    Args:
        plan: ranks on this node.
        affinity: cores in the CPU affinity.
        usable: cores that all ranks share.
        environ: environment variables.
        on_cpu: whether the training uses the CPU; it then chooses the number of threads that is not stated.
    """
    processes = plan.processes()
    each = max(1, int(usable) // processes)
    setting = environ.get("OMP_NUM_THREADS", "").strip()
    shared = f"{processes} process{'es' if processes > 1 else ''} on {usable:g} cores"
    if plan.threads:
        found, remedy = f"--threads {plan.threads} with {shared}", f"--threads {each}  # or auto"
        yield _crowded_finding(found, remedy) if plan.threads > each else Finding("threads", "ok", found)
    elif setting:
        idle = plan.accelerator == "cpu" and _parse_threads(setting) * processes * 2 <= usable
        yield _threads_of_variable(setting, each, shared, idle)
        yield from _check_binding(processes, shared, environ)
    elif on_cpu:
        choice = f"1 or {each} threads, whichever is faster," if each > 1 else "1 thread"
        yield Finding("threads", "ok", f"--threads auto: {choice} in each of {shared}")
    else:
        started = threads_started(processes, affinity, environ)
        found = f"OMP_NUM_THREADS is not set: {started} thread{'s' if started > 1 else ''} in each of {shared}"
        remedy = f"export OMP_NUM_THREADS={each}"
        yield _crowded_finding(found, remedy) if started > each else Finding("threads", "ok", found)


def _crowded_finding(found: str, remedy: str) -> Finding:
    why = "an operation waits for its slowest thread; with more threads than cores it is several times slower"
    return Finding("threads", "warn", found, why, remedy)


def _threads_of_variable(given: str, each: int, shared: str, idle: bool) -> Finding:
    """Check OMP_NUM_THREADS.

    Args:
        given: value of the variable, not empty.
        each: cores of each rank.
        shared: the ranks and their cores in words.
        idle: whether the training computes on the CPU and would leave half of the cores idle.
    """
    remedy, threads = f"export OMP_NUM_THREADS={each}", _parse_threads(given)
    if not threads:
        why = "it is not a positive number: it is ignored, and every rank starts a thread for every core"
        return Finding("threads", "warn", f"OMP_NUM_THREADS={given!r}", why, remedy)
    if threads > each:
        return _crowded_finding(f"OMP_NUM_THREADS={given} with {shared}", remedy)
    if idle:
        why = "the training computes on the CPU, and the remaining cores are idle"
        return Finding("threads", "warn", f"OMP_NUM_THREADS={given} with {shared}", why, remedy)
    return Finding("threads", "ok", f"OMP_NUM_THREADS={given}, {shared}")


def _check_binding(processes: int, shared: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the variables that bind threads to cores."""
    bind = environ.get("OMP_PROC_BIND", "").lower() in ("true", "close", "spread", "master", "primary")
    if (bind or environ.get("GOMP_CPU_AFFINITY")) and processes > 1:
        name = "OMP_PROC_BIND" if bind else "GOMP_CPU_AFFINITY"
        why = "unless each rank has its own CPU affinity, all ranks bind their threads to the same cores"
        yield Finding("threads", "warn", f"{name}={environ[name]} with {shared}", why, f"unset {name}")
