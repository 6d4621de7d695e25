"""Checks the footers of Parquet files in a process of its own.

pyarrow ends the process on some corrupt footers (`Definition level histogram size mismatch`): its functions for the
metadata of a column do not catch the exceptions of C++. A training must end with a message, so another process reads
the footers first.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

_WHOLE = b"whole\n"

_CHILD = """
import json, sys
import pyarrow.parquet
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:
    pass
for line in sys.stdin:
    try:
        footer = pyarrow.parquet.read_metadata(json.loads(line))
        for group in range(footer.num_row_groups):
            columns = footer.row_group(group)
            for leaf in range(footer.num_columns):
                found = columns.column(leaf)
                found.total_uncompressed_size
                found.statistics
    except Exception:
        pass
    print("whole", flush=True)
"""
"""Reads a path as JSON from each line, and answers each; an error is left to the caller, who meets it, too."""

_REASON = 200  # characters


class FooterCheck:
    """Reads footers in a child process before this process does; the child starts with the first file.

    The import of pyarrow takes it 0.2 CPU seconds, and the footer of a file less than a millisecond.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "FooterCheck":
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()

    def check(self, path: Path) -> None:
        """Check the footer of a file. A file that is not Parquet passes: reading it raises an error.

        Raises:
            ValueError: reading the footer ends a process.
        """
        if self._child is None:
            self._start()
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(os.fspath(path.resolve())).encode() + b"\n")
            child.stdin.flush()
            if child.stdout.readline() == _WHOLE:
                return
        except BrokenPipeError:
            pass
        self._child = None
        # No answer: the child has ended. What C++ wrote to stderr is the reason.
        lines = child.communicate()[1].decode(errors="replace").splitlines()
        reasons = [line for line in lines if "what():" in line] or lines[-1:]
        reason = reasons[0].partition("what():")[2] or reasons[0] if reasons else f"exit code {child.returncode}"
        raise ValueError(
            f"{path}: not a Parquet file, or a corrupt one: reading its footer ends the process: "
            f"{reason.strip()[:_REASON]}; fetch or write it again"
        )

    def _start(self) -> None:
        pipe = subprocess.PIPE
        self._child = subprocess.Popen([sys.executable, "-c", _CHILD], stdin=pipe, stdout=pipe, stderr=pipe)

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        self._child = None
