"""Trainings that are measured in turn: each goes on for some steps when it is asked, and stands still in between.

A training is a body of code with a loop of its own (a Trainer's `fit`, a bare loop) that calls `gate.step()` after each
optimizer step. It runs in a process of its own with one thread, or in two that share the work. The sides take turns,
so whatever else the machine does meets all of them alike, and ratios and differences are taken within a turn.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import NamedTuple

import psutil
import torch

from benchmarks.memory_peak import forget_peak, peak
from benchmarks.order import in_order
from benchmarks.side import SideProcess, kill_all

WARM_UP = 20
"""Steps before the first turn: what is done once (optimizer state, buckets, first log) is not a step's cost."""


class Turn(NamedTuple):
    """What one step took, in seconds, and what it needed."""

    cpu: float  # of all processes of the side
    wall: float
    memory: int = 0
    """Bytes that the side's first process had at most in the turn, of which much is libraries."""


class Gate:
    """Lets a training do so many steps at a time; only the first process of a side has one that ever closes."""

    def __init__(self, always_open: bool = False) -> None:
        self._always_open = always_open
        self._left, self._change = 0, threading.Condition()

    def step(self) -> None:
        """Called by the training after each step; returns when it may go on."""
        if self._always_open:
            return
        with self._change:
            self._left -= 1
            self._change.notify_all()
            self._change.wait_for(lambda: self._left > 0)

    @property
    def closing(self) -> bool:
        """Whether the training is to stand still after the step under way: work on a device must be done by then."""
        return not self._always_open and self._left == 1

    def run(self, steps: int) -> None:
        """Let the training do `steps` steps; returns when they are done."""
        with self._change:
            self._left += steps
            self._change.notify_all()
            self._change.wait_for(lambda: self._left <= 0)


Body = Callable[[Gate], None]
"""A training without end; picklable, called in the side's own process(es), in an empty folder."""


def take_turns(
    sides: dict[str, Body],
    *,
    processes: dict[str, int],
    steps: int,
    repeats: int,
    apart: str | None = None,
    warm_up: int = WARM_UP,
) -> dict[str, list[Turn]]:
    """`repeats` turns of `steps` steps of every side, after `warm_up` steps that are not measured.

    With `apart`, the name of another side: the first one twice at the same time, in two trainings that know nothing of
    each other. What they do together is what the machine has to give.
    """
    with ExitStack() as stack:
        running: dict[str, Side | Apart] = {
            name: stack.enter_context(Side(name, body, processes[name], warm_up)) for name, body in sides.items()
        }
        if apart:
            first = next(iter(sides.values()))
            running[apart] = Apart([stack.enter_context(Side(apart, first, 1, warm_up)) for _ in range(2)])
        turns: dict[str, list[Turn]] = {name: [] for name in running}
        for turn in range(repeats):
            for name, side in in_order(running.items(), turn):
                turns[name].append(side.turn(steps))
        return turns


class Side(SideProcess):
    """The process (or two) of a training."""

    def __init__(self, name: str, body: Body, processes: int, warm_up: int) -> None:
        super().__init__(name, _first, body, processes, warm_up)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        kill_all(self.process.pid)
        self.process.join()
        self.connection.close()

    def turn(self, steps: int) -> Turn:
        self.begin(steps)
        return self.finish()

    def begin(self, steps: int) -> None:
        """A turn's start; `finish` is its end."""
        self.connection.send(steps)

    def finish(self) -> Turn:
        """Waits for the turn that was begun."""
        return self.receive()


class Apart:
    """Independent trainings at the same time; a step is what one of them does, at the pace of all."""

    def __init__(self, sides: list[Side]) -> None:
        self.sides = sides

    def turn(self, steps: int) -> Turn:
        for side in self.sides:
            side.begin(steps)
        turns = [side.finish() for side in self.sides]
        return Turn(sum(turn.cpu for turn in turns) / len(turns), max(turn.wall for turn in turns) / len(turns))


def _first(connection: Connection, body: Body, processes: int, warm_up: int) -> None:
    gate = Gate()
    threading.Thread(target=_serve, args=(connection, gate, warm_up), daemon=True).start()
    with TemporaryDirectory() as folder:
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        spawn = get_context("spawn")
        for rank in range(1, processes):
            other = spawn.Process(target=_member, args=(body, folder, rank, processes, store.port), daemon=True)
            other.start()
        _train(body, gate, folder, 0, processes, store.port)


def _member(body: Body, folder: str, rank: int, processes: int, port: int) -> None:
    _train(body, Gate(always_open=True), folder, rank, processes, port)


def _train(body: Body, gate: Gate, folder: str, rank: int, processes: int, port: int) -> None:
    os.chdir(folder)
    torch.set_num_threads(1)
    if processes > 1:  # as torchrun starts them
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": Path(folder).name,
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
            "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0",
            "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
        }  # fmt: skip
    body(gate)


def _serve(connection: Connection, gate: Gate, warm_up: int) -> None:
    gate.run(warm_up)
    connection.send(None)
    while True:
        try:
            steps = connection.recv()
        except EOFError:  # the benchmark was killed, and nobody else would end this training
            os._exit(1)
        forget_peak()
        cpu, wall = _cpu_seconds(), time.perf_counter()
        gate.run(steps)
        cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
        connection.send(Turn(cpu / steps, wall / steps, peak()))


def _cpu_seconds() -> float:
    """Of this process and those it has started."""
    spent = time.process_time()
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        spent += times.user + times.system
    return spent
