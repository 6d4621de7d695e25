"""A copy of the working tree in which a bug is planted, and the tests that are run there."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.planted_bugs.bug import Bug

REPOSITORY = Path(__file__).resolve().parents[2]

_OWN = "tests/test_planted_bugs.py"
"""Holds that every bug can be planted, so it fails for each that is."""
_NO_TESTS = 5  # pytest's exit code for a selection without a case
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Outcome(NamedTuple):
    """Result of a call of pytest."""

    found: str | None
    """The test that failed; None when all passed or there was none."""
    seconds: float
    output: str


class Copy:
    """The files that git tracks or would track, in a folder of their own: the user's tree is never changed."""

    def __init__(self, folder: Path, source: Path = REPOSITORY) -> None:
        self.folder, self._aside = folder, folder / ".without-the-bug"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(listed, cwd=source, capture_output=True, text=True, check=True)
        for name in sorted(set(filter(None, done.stdout.split("\0")))):
            if (source / name).is_file():  # not a file that was deleted and is still in the index
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, folder / name)

    def plant(self, bug: Bug) -> None:
        """Changes the copy. ValueError as of `Bug.planted`."""
        path = self.folder / bug.file
        shutil.copy2(path, self._aside)
        path.write_text(bug.planted(path.read_text(encoding="utf-8")), encoding="utf-8")

    def remove(self, bug: Bug) -> None:
        """The file is as it was, with its old time: compiled code of the bug is not taken for it."""
        shutil.copy2(self._aside, self.folder / bug.file)

    def test(self, tests: Sequence[str], timeout: float, processes: int = 0) -> Outcome:
        """Runs the fast tier of `tests` (all of them for none) up to its first failure.

        Args:
            tests: files, folders or single cases.
            timeout: seconds after which the call and all that it has started is killed; counts as a failure.
            processes: of pytest-xdist; 0 for none.

        Raises:
            RuntimeError: pytest could not run them.
        """
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
        command += [*tests, f"--ignore={_OWN}"]
        command += ["--numprocesses", str(processes), "--dist", "worksteal"] if processes else []
        start = time.monotonic()
        code, output = _run(command, self.folder, timeout)
        seconds = time.monotonic() - start
        if code is None:
            return Outcome(f"time-out of {timeout:.0f} s", seconds, output)
        if code in (0, _NO_TESTS):
            return Outcome(None, seconds, output)
        failed = _FAILED.search(output)
        if code < 0 and failed is None:
            return Outcome(f"pytest is killed by signal {-code}", seconds, output)
        if failed is None:
            raise RuntimeError(f"pytest ended with {code} and named no test:\n{output[-3000:]}")
        return Outcome(failed[1], seconds, output)


def _run(command: Sequence[str], folder: Path, timeout: float) -> tuple[int | None, str]:
    """Exit code and output; no code after the time-out. Nothing that the command started survives it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), "COLUMNS": "400"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # compiled code of a bug may pass for the source's: same size and time
    environment.pop("CI", None)  # in which the tier also fails for what its cases cost
    started = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        output, _ = started.communicate(timeout=timeout)
        return started.returncode, output
    except subprocess.TimeoutExpired:
        # Processes of a training have sessions of their own, so no process group holds all of them.
        for process in [*psutil.Process(started.pid).children(recursive=True), started]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        output, _ = started.communicate()
        return None, output
