"""Implements a driver's side of the protocol with the measuring process: in every turn a line of JSON each way.

A driver runs in its package's environment, so this file needs only the standard library. The messages are:

  settings  ->              once
            <- versions     prepared (not measured)
  units     ->              start of a turn of so many units: steps or evaluations
            <- results      of the turn: CPU and wall seconds, and the sums of the amounts
  (the end) ->              no more turns
"""

import json
import os
import sys
import time
from typing import Any, NoReturn


class Turns:
    """Reads the settings in its constructor; a driver then calls `begin`, and `done` after every unit."""

    def __init__(self) -> None:
        # Packages print to stdout. It is redirected to stderr, so the pipe has the answers only.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.settings = self._listen()
        self._left = 0

    def begin(self, **versions: str) -> None:
        """Report that everything is prepared, and wait for the first turn."""
        self._say(versions)
        self._start()

    def done(self, **amounts: float) -> None:
        """Record a unit and wait until the next may begin. Does not return after the last turn."""
        for name, amount in amounts.items():
            self._amounts[name] = self._amounts.get(name, 0) + amount
        self._left -= 1
        if self._left == 0:
            cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
            self._say({"cpu": cpu, "wall": wall, **self._amounts})
            self._start()

    def _start(self) -> None:
        self._left = self._listen()["units"]
        self._amounts: dict[str, float] = {}
        # The clocks start after the request has arrived: the wait for other variants' turns is not measured.
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def _listen(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            _end()
        return json.loads(line)

    def _say(self, message: dict[str, Any]) -> None:
        sys.stdout.flush()  # the measuring process kills the driver, which would lose what the package printed
        print(json.dumps(message), file=self._answers, flush=True)


def _end() -> NoReturn:
    # Inside a package's training loop an exception would be an error, with a checkpoint and a report.
    sys.stderr.flush()
    os._exit(0)
