"""Runs train.py, or a function, on a device in processes of their own, within a time limit."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.support.ranks.team import Processes, Team

REPORT_END = 3000
"""Characters of a process's output that a failure shows."""


class Workplace:
    """A folder in which trainings of one device run. None of their processes survives.

    Args:
        processes: starts them.
        folder: where they run.
        ends: monotonic time at which all of them have to be over.
    """

    def __init__(self, processes: Processes, folder: Path, ends: float = float("inf")) -> None:
        self.folder = folder
        self._processes, self._ends, self._calls = processes, ends, 0

    def run(
        self, command: str, *options: str, name: str, codes: list[int] | None = None, limit: float = 120, **team: Any
    ) -> Team:
        """Run a command of train.py to its end.

        Args:
            command: as `fit`.
            options: of the command.
            name: of the run.
            codes: exit codes of the processes; by default one process, which succeeds.
            limit: seconds.
            team: settings of Team.

        Raises:
            AssertionError: other exit codes, or no end within the limit; with the end of the output.
        """
        codes = codes or [0]
        started = Team(self._processes, [command, *options], self.folder, name, processes=len(codes), **team)
        try:
            found = started.end(self._left(limit))
        finally:
            started.close()
        assert found == codes, f"exit codes {found} after {started.seconds:.0f} s:\n{started.output[-REPORT_END:]}"
        return started

    def call(self, function: Callable[..., Any], *arguments: Any, limit: float = 120) -> Any:
        """Call a function of a module in a process of its own; arguments and result are JSON.

        Raises:
            AssertionError: it raised, or did not end within the limit; with the end of the output.
        """
        self._calls += 1
        answer, output = (self.folder / f"call-{self._calls}.{kind}" for kind in ("json", "log"))
        command = [
            "-m",
            "tests.support.device.call_in_process",
            function.__module__,
            function.__name__,
            json.dumps(arguments),
        ]
        pid = self._processes.start([*command, str(answer)], dict(os.environ), self.folder, output)
        deadline = time.monotonic() + self._left(limit)
        while pid not in self._processes.codes and time.monotonic() < deadline:
            self._processes.listen()
            time.sleep(0.01)
        if pid not in self._processes.codes:
            os.killpg(pid, 9)
        code = self._processes.codes.get(pid)
        assert code == 0, f"exit code {code} of {function.__name__}:\n{output.read_text()[-REPORT_END:]}"
        return json.loads(answer.read_text(encoding="utf-8"))

    def can_use(self, device: str) -> bool:
        """Return whether a process can compute on a device; a forked one cannot if its parent has used CUDA."""
        try:
            return bool(self.call(_two, device, limit=60) == 2)
        except AssertionError:
            return False

    def _left(self, limit: float) -> float:
        return max(0.0, min(limit, self._ends - time.monotonic()))


def _two(device: str) -> float:
    return torch.ones(2, device=device).sum().item()
