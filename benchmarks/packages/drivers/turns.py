"""A driver's end of the conversation with the measuring process: a line of JSON each way for every turn.

A driver runs in its package's own environment, so this file needs nothing but the standard library. What is said:

  settings  ->              what to do, once
            <- versions     prepared (not measured)
  units     ->              begin a turn of so many units: steps, or evaluations
            <- figures      of the turn: CPU and wall seconds, and the amounts done, added up
  (the end) ->              no more turns
"""

import json
import os
import sys
import time
from typing import Any, NoReturn


class Turns:
    """Reads the settings at once; a driver first calls `begin`, then `done` after every unit of work."""

    def __init__(self) -> None:
        # Packages print what they like: it goes where errors go, and the answers have the pipe to themselves.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.settings = self._listen()
        self._left = 0

    def begin(self, **versions: str) -> None:
        """All is prepared; returns when the first turn begins."""
        self._say(versions)
        self._start()

    def done(self, **amounts: float) -> None:
        """A unit is done. Returns when the next one may begin, and not at all when there are no more turns."""
        for name, amount in amounts.items():
            self._amounts[name] = self._amounts.get(name, 0) + amount
        self._left -= 1
        if self._left == 0:
            cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
            self._say({"cpu": cpu, "wall": wall, **self._amounts})
            self._start()

    def _start(self) -> None:
        self._left, self._amounts = self._listen()["units"], {}
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def _listen(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            _end()
        return json.loads(line)

    def _say(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._answers, flush=True)


def _end() -> NoReturn:
    # Inside a package's training loop an exception would be a fault, with a checkpoint and a report of it.
    sys.stderr.flush()
    os._exit(0)
