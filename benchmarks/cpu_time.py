"""Reads the CPU time that a benchmark has used."""

import resource


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
