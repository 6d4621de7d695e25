"""Two or more sides of a comparison, measured in turn, each in a process of its own with one thread.

Sides take turns (peer, ours, peer, ours, ...), so that whatever else the machine does meets both alike, and the ratio
is taken within a turn. A process of its own makes the peak memory that of one side alone. CPU seconds are what counts:
they are nearly the same on a busy machine; wall seconds are not.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import NamedTuple

import torch

from benchmarks.memory_peak import forget_peak, peak
from benchmarks.order import in_order
from benchmarks.side import SideProcess


class Done(NamedTuple):
    """What one call of a side's work did."""

    amount: float  # in the comparison's unit: steps, users, batches, ...
    waited: float = 0.0  # seconds of it (by the wall clock) that training waited for data


Work = Callable[[], Done]
Maker = Callable[[], Work]
"""Prepares a side (not measured) and returns its work; called in the side's own process, so it must be picklable."""


class Turn(NamedTuple):
    """One measured call: seconds for one unit of work."""

    cpu: float
    wall: float
    waited_share: float  # of the wall seconds


class Measured(NamedTuple):
    """One side after all its turns."""

    turns: list[Turn]
    memory: int  # bytes at the peak of the work, above what the process held before
    prepared: int  # bytes of that: what was made for the work, above the libraries


def take_turns(sides: dict[str, Maker], repeats: int) -> dict[str, Measured]:
    """Measure all sides ``repeats`` times, in turn, after one call each to warm up."""
    with ExitStack() as stack:
        running = {name: stack.enter_context(Side(name, make)) for name, make in sides.items()}
        turns: dict[str, list[Turn]] = {name: [] for name in sides}
        for turn in range(repeats):
            for name, side in in_order(running.items(), turn):
                turns[name].append(side.turn())
        return {name: Measured(turns[name], *side.memory()) for name, side in running.items()}


class Side(SideProcess):
    """A process that does a side's work when asked."""

    def __init__(self, name: str, make: Maker) -> None:
        super().__init__(name, _serve, make, daemon=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.process.terminate()
        self.connection.close()
        self.process.join()

    def turn(self) -> Turn:
        return self._ask("turn")

    def memory(self) -> tuple[int, int]:
        """See ``Measured``: that of the work, and what was prepared."""
        return self._ask("memory")

    def _ask(self, question: str) -> Turn | tuple[int, int]:
        self.connection.send(question)
        return self.receive()


def _serve(connection: Connection, make: Maker) -> None:
    torch.set_num_threads(1)
    imported = forget_peak()
    work = make()
    before = forget_peak()
    work()
    connection.send(None)
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(_turn(work) if question == "turn" else (peak() - before, before - imported))


def _turn(work: Work) -> Turn:
    cpu, wall = time.process_time(), time.perf_counter()
    done = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Turn(cpu / done.amount, wall / done.amount, done.waited / wall)
