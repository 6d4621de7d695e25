"""A driver's process and the talk with it: lines of JSON, for its Python and its libraries are not this process's."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from benchmarks.memory_peak import forget_peak, peak

_LINES = 6
"""Of a driver's output, quoted when it has failed."""


class DriverFailed(Exception):
    """A driver ended, or answered something else than a line of JSON."""


class Command(NamedTuple):
    """How a driver is started."""

    name: str  # for messages
    python: Path
    script: Path
    variables: dict[str, str]


class Driver:
    """A driver at work in a folder of its own, from where it is prepared until the end of the `with` block.

    Args:
        command: how it is started.
        settings: what it is told first; must fit into JSON.
        folder: an empty one, for whatever the package writes; its output goes there, too.
    """

    def __init__(self, command: Command, settings: dict[str, Any], folder: Path) -> None:
        self.command, self._output = command, folder / "output.txt"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [str(command.python), str(command.script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=output, cwd=folder, env=command.variables, text=True, start_new_session=True,
            )  # fmt: skip
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
            os.killpg(self._process.pid, signal.SIGKILL)  # the session that it leads: nothing of it is left behind
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()

    def turn(self, units: int) -> dict[str, float]:
        """`units` steps or evaluations: the driver's figures, and `memory`, bytes of its process at the peak."""
        forget_peak(self._process.pid)
        self._say({"units": units})
        return self._listen() | {"memory": peak(self._process.pid)}

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # it has ended: the answer, which does not come, says so with more words
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            said = "\n".join(self._output.read_text(errors="replace").splitlines()[-_LINES:])
            name = self.command.name
            raise DriverFailed(f"the driver of {name} ended with exit code {code}; its last words:\n{said}")
        try:
            return json.loads(line)
        except ValueError as error:
            raise DriverFailed(f"the driver of {self.command.name} said {line!r}, expected JSON") from error
