"""The most memory that a process has had since it was last asked to forget."""

import resource
import sys
from contextlib import suppress
from pathlib import Path


def forget_peak(process: int | None = None) -> int:
    """Start a new peak where the system can (Linux); returns the bytes that are its ground. `process`: see ``peak``."""
    # Elsewhere, or where /proc is read-only, the ground is the peak of the preparation: far below that of the work.
    with suppress(OSError):
        Path(f"/proc/{process or 'self'}/clear_refs").write_text("5")
    return peak(process)


def peak(process: int | None = None) -> int:
    """Bytes of memory at the process's peak; of this one, or (Linux alone, elsewhere 0) of another by its id.

    Linux's own mark if there is one: ``ru_maxrss`` of a process begins at the peak of the one that started it.
    """
    status = Path(f"/proc/{process or 'self'}/status")
    if status.exists():
        marks = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(marks.get("VmHWM", "0 kB").split()[0]) * 1024  # one that has ended has no mark
    if process is not None:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
