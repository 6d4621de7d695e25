"""Starts a driver's process and talks to it: lines of JSON, because its Python and libraries differ from ours."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from benchmarks.memory_peak import peak, reset_peak

_LINES = 6
"""Lines of a driver's output that the error of a failed driver quotes."""


class DriverFailed(Exception):
    """A driver ended, or its answer was not a line of JSON."""


class Command(NamedTuple):
    """Command that starts a driver."""

    name: str  # for messages
    python: Path
    script: Path
    variables: dict[str, str]


class Driver:
    """A driver that runs in its own folder until the end of the `with` block.

    Args:
        command: command that starts it.
        settings: its first message; must be representable in JSON.
        folder: empty folder for the package's files and its output.
    """

    def __init__(self, command: Command, settings: dict[str, Any], folder: Path) -> None:
        self.command, self._output = command, folder / "output.txt"
        with self._output.open("w") as output:
            # Output goes to a file: a pipe that no process reads would block a package that prints much.
            self._process = subprocess.Popen(
                [str(command.python), str(command.script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=folder,
                env=command.variables,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None  # pipes, see above
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._say(settings)

    def __enter__(self) -> "Driver":
        try:
            self.versions: dict[str, str] = self._listen()  # it is prepared
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with all processes of its session
        self._process.wait()
        for pipe in (self._questions, self._answers):
            with suppress(BrokenPipeError):
                pipe.close()

    def turn(self, units: int) -> dict[str, float]:
        """Run `units` steps or evaluations. Return the driver's measurements and `memory`, its peak bytes."""
        # By this process, so that a driver needs no code of the project.
        reset_peak(self._process.pid)
        self._say({"units": units})
        return self._listen() | {"memory": peak(self._process.pid)}

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # it has ended: reading its answer raises a better error
            self._questions.write(json.dumps(message) + "\n")
            self._questions.flush()

    def _listen(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            code = self._process.wait()
            output = "\n".join(self._output.read_text(errors="replace").splitlines()[-_LINES:])
            name = self.command.name
            raise DriverFailed(f"the driver of {name} ended with exit code {code}; its output ends with:\n{output}")
        try:
            return json.loads(line)
        except ValueError as error:
            raise DriverFailed(f"the driver of {self.command.name} sent {line!r}, expected JSON") from error
