"""Measures two or more variants of a comparison in turns, each in its own process with a single thread.

Variants alternate (peer, ours, peer, ours, ...), so other load on the machine affects both, and ratios are computed
within a turn. In separate processes, the peak memory belongs to a single variant. Use CPU seconds: they are nearly the
same on a busy machine; wall seconds are not.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple

import torch

from benchmarks.memory_peak import peak, reset_peak
from benchmarks.turn_order import turn_order
from benchmarks.variant_process import VariantProcess


class Done(NamedTuple):
    """Result of a call of a variant's work."""

    amount: float  # in the comparison's unit: steps, users, batches, ...
    waited: float = 0.0  # wall seconds that training waited for data


Work = Callable[[], Done]
Maker = Callable[[], Work]
"""Prepares a variant (not measured) and returns its work. Its process calls it, so it must be picklable."""


class Measurement(NamedTuple):
    """Seconds per unit of a measured call."""

    cpu: float
    wall: float
    waited_share: float  # of the wall seconds


class Measured(NamedTuple):
    """Measurements of a variant."""

    turns: list[Measurement]
    memory: int  # peak bytes of the work, above what the process held before
    prepared: int  # part of it that was allocated for the work, without libraries


def take_turns(variants: dict[str, Maker], repeats: int) -> dict[str, Measured]:
    """Measure all variants `repeats` times in turns, after a warm-up call each."""
    with ExitStack() as stack:
        running = {name: stack.enter_context(Variant(name, make)) for name, make in variants.items()}
        turns: dict[str, list[Measurement]] = {name: [] for name in variants}
        for turn in range(repeats):
            for name, variant in turn_order(running.items(), turn):
                turns[name].append(variant.turn())
        return {name: Measured(turns[name], *variant.memory()) for name, variant in running.items()}


class Variant(VariantProcess):
    """Process that does a variant's work on request."""

    def __init__(self, name: str, make: Maker) -> None:
        super().__init__(name, _serve, make, daemon=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # After an error the variant may wait for a request that does not come.
        if kind is not None:
            self.process.terminate()
        self.connection.close()
        self.process.join()

    def turn(self) -> Measurement:
        """Do the work once, and return its measurements."""
        return self._ask("turn")

    def memory(self) -> tuple[int, int]:
        """Return the memory of the work, and of what was prepared; see `Measured`."""
        return self._ask("memory")

    def _ask(self, question: str) -> Any:
        self.connection.send(question)
        return self.receive()


def _serve(connection: Connection, make: Maker) -> None:
    torch.set_num_threads(1)
    # Three levels: libraries, what is prepared, and the peak of the work above it.
    imported = reset_peak()
    work = make()
    before = reset_peak()
    work()
    connection.send(None)
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(_turn(work) if question == "turn" else (peak() - before, before - imported))


def _turn(work: Work) -> Measurement:
    cpu, wall = time.process_time(), time.perf_counter()
    done = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Measurement(cpu / done.amount, wall / done.amount, done.waited / wall)
