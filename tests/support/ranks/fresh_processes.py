"""Starts processes of train.py as a user does, with the interface of ForkServer: seconds for imports, no fork."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import REPOSITORY


class FreshProcesses:
    """Processes that import everything themselves."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: list[str], environment: Mapping[str, str], folder: Path, output: Path) -> int:
        """Start `python train.py ARGUMENTS`, or `python -m MODULE ...` if they begin with -m; return its number."""
        program = [] if arguments[0] == "-m" else [str(REPOSITORY / "train.py")]
        paths = [str(REPOSITORY), *filter(None, [environment.get("PYTHONPATH")])]
        with output.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                cwd=folder,
                env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._running.append(process)
        return process.pid

    def listen(self) -> None:
        """Take note of the processes that have ended."""
        for process in self._running:
            if process.poll() is not None:
                self.codes[process.pid] = process.returncode
        self._running = [process for process in self._running if process.returncode is None]
