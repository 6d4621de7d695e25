"""Measures the peak memory of a process since its last reset."""

import resource
import sys
from contextlib import suppress
from pathlib import Path


def reset_peak(process: int | None = None) -> int:
    """Reset the peak where the system can (Linux), and return its baseline in bytes. `process`: see `peak`."""
    # Elsewhere, or if /proc is read-only, the baseline is the peak of the preparation, far below the peak of the work.
    with suppress(OSError):
        Path(f"/proc/{process or 'self'}/clear_refs").write_text("5")
    return peak(process)


def peak(process: int | None = None) -> int:
    """Return the peak memory in bytes of this process or, on Linux only (elsewhere 0), of another process by its id.

    Linux's own high-water mark is preferred: `ru_maxrss` of a process starts at the peak of its parent.
    """
    status = Path(f"/proc/{process or 'self'}/status")
    if status.exists():
        marks = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(marks.get("VmHWM", "0 kB").split()[0]) * 1024  # an ended process has no mark
    if process is not None:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
