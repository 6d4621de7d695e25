"""Checks OpenMP threads: how long waiting threads spin, and whether other programs use their cores."""

import time
from collections.abc import Iterator, Mapping

from commands.doctor.check import Finding
from commands.doctor.launch_plan import LaunchPlan
from commands.launch.openmp_spin import POLICY, WAITS

_MAX_SPIN = {"GOMP_SPINCOUNT": 100_000, "KMP_BLOCKTIME": 10}
"""Rounds and milliseconds of spinning that delay other threads when another program needs the core."""

_SIGNIFICANT = 0.5
"""Cores in use by other programs that are reported."""

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}  # of GOMP_SPINCOUNT


def busy_cores(seconds: float = 0.4) -> float:
    """Return how many of this process's cores other programs use, measured for `seconds`."""
    import psutil  # imported here: a check reports that it is missing

    this_process, before = psutil.Process(), time.process_time()
    shares = psutil.cpu_percent(seconds, percpu=True)
    allowed = this_process.cpu_affinity() if hasattr(this_process, "cpu_affinity") else range(len(shares))
    used = sum(shares[core] for core in allowed if core < len(shares)) / 100
    # Subtract the time that this process itself has used.
    return max(0.0, used - (time.process_time() - before) / seconds)


def check_thread_spin(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report variables that let waiting threads spin for long; without them train.py bounds it."""
    why = "a waiting thread keeps its core; beside another program training is up to 30 times slower"
    if environ.get(POLICY, "").strip().lower() == "active":
        yield Finding("thread spin", "warn", f"{POLICY}={environ[POLICY]}", why, f"unset {POLICY}")
    for name in WAITS:
        value = environ.get(name, "").strip().lower()
        if value and _amount(value) >= _MAX_SPIN[name]:
            yield Finding("thread spin", "warn", f"{name}={environ[name]}", why, f"unset {name}")


def check_contention(plan: LaunchPlan, usable: float, busy: float, threads: int | None) -> Iterator[Finding]:
    """Check whether other programs use the cores that the stated threads need.

    Args:
        plan: ranks on this node.
        usable: cores that all ranks share.
        busy: cores that other programs use.
        threads: stated threads of each rank; None if the training chooses them.
    """
    if busy < _SIGNIFICANT:
        return
    found = f"other programs use {busy:.1f} of {usable:g} cores"
    if threads is None:
        yield Finding("contention", "ok", f"{found}; --threads auto chooses by timing a few passes at the start")
    elif threads > 1 and threads * plan.processes() > usable - busy + _SIGNIFICANT:
        stated = f"{threads} threads in each of {plan.processes()} process(es) need these cores too"
        yield Finding(
            "contention", "warn", f"{found}; {stated}",
            "each operation waits for its slowest thread, which waits for a core: training is several times slower",
            "unset OMP_NUM_THREADS  # and --threads auto, which times one thread against several",
        )  # fmt: skip
    else:
        yield Finding("contention", "ok", found)


def _amount(value: str) -> float:
    """Parse a value as libgomp and libiomp do: 300000, 300k, infinite, 200ms; 0 if they reject it."""
    if value.startswith("inf"):
        return float("inf")
    number = value.removesuffix("ms")
    factor = _SUFFIXES.get(number[-1:], 1)
    digits = number[:-1] if factor > 1 else number
    return float(digits) * factor if digits.isdigit() else 0.0
