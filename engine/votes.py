"""What the processes of a run tell each other once a step, inside the all-reduce that the exact mean needs anyway.

A process must not act on what it alone saw (a signal, a failed write). It casts a vote; after the step all of them hold
the same totals and decide alike, at no further collective.
"""

from typing import Any

import torch
from torch import Tensor


class Votes:
    """Named totals over all processes and steps, equal on every process.

    Reading a total waits for the device, so on a GPU it is read every so many steps, by all processes at the same one.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, float] = {}
        self._totals: Tensor | None = None

    def open(self, name: str) -> None:
        """Make a vote known; on every process and in the same order, before training."""
        self._waiting.setdefault(name, 0.0)
        self._totals = None

    def cast(self, name: str, value: float = 1.0) -> None:
        """Add to a total with the next step. May be called from a signal handler."""
        self._waiting[name] += value

    def total(self, name: str) -> float:
        """The sum of what all processes have cast up to the last step."""
        if name not in self._waiting:
            raise KeyError(f"vote {name!r} was not opened; there are {sorted(self._waiting)}")
        return 0.0 if self._totals is None else float(self._totals[list(self._waiting).index(name)])

    def ballot(self, like: dict[str, Any]) -> Tensor:
        """This process's votes since the last step, as a vector with the dtype and device of `like`."""
        cast = dict(self._waiting)
        for name, value in cast.items():
            self._waiting[name] -= value  # what a signal handler casts meanwhile stays for the next step
        return torch.tensor(list(cast.values()), **like)

    def count(self, sums: Tensor) -> None:
        """Take in the all-reduced ballots of a step."""
        self._totals = sums if self._totals is None else self._totals + sums
