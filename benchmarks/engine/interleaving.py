"""Measures trainings in turns: each runs some steps on request and waits in between.

A training is a function with its own loop (a Trainer's `fit`, a bare loop) that calls `gate.step()` after each
optimizer step. It runs in its own process with a single thread, or in two processes that share the work. The variants
alternate, so other load on the machine affects all of them, and ratios and differences are computed within a turn.
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
from typing import NamedTuple

import psutil
import torch

from benchmarks.memory_peak import peak, reset_peak
from benchmarks.turn_order import turn_order
from benchmarks.variant_process import VariantProcess

WARM_UP = 20
"""Steps before the first turn; one-time work (optimizer state, buckets, first log) is not part of a step's cost."""


class Measurement(NamedTuple):
    """Seconds and memory of a step."""

    cpu: float  # of all processes of the variant
    wall: float
    memory: int = 0
    """Peak memory in bytes of the variant's first process in the turn, much of which is libraries."""


class Gate:
    """Lets a training run a number of steps; only the first process of a variant has a gate that closes."""

    def __init__(self, always_open: bool = False) -> None:
        self._always_open = always_open
        self._left, self._change = 0, threading.Condition()

    def step(self) -> None:
        """Wait until the training may continue. The training calls it after each step."""
        if self._always_open:
            return
        with self._change:
            self._left -= 1
            self._change.notify_all()
            # The training's thread waits here while other variants have their turns.
            self._change.wait_for(lambda: self._left > 0)

    @property
    def closing(self) -> bool:
        """Whether the training will wait after the current step, so that work on a device must be complete by then."""
        return not self._always_open and self._left == 1

    def run(self, steps: int) -> None:
        """Let the training run `steps` steps, and wait for them."""
        with self._change:
            self._left += steps
            self._change.notify_all()
            self._change.wait_for(lambda: self._left <= 0)


Body = Callable[[Gate], None]
"""Endless training. It must be picklable and is called in the variant's own processes, in an empty folder."""


def take_turns(
    variants: dict[str, Body],
    *,
    processes: dict[str, int],
    steps: int,
    repeats: int,
    apart: str | None = None,
    warm_up: int = WARM_UP,
) -> dict[str, list[Measurement]]:
    """Return `repeats` turns of `steps` steps of every variant, after `warm_up` steps that are not measured.

    With `apart`, the name of an additional variant, the first training also runs twice at the same time in independent
    processes. Their joint speed is the limit of the machine.
    """
    with ExitStack() as stack:
        running: dict[str, Variant | Apart] = {
            name: stack.enter_context(Variant(name, body, processes[name], warm_up)) for name, body in variants.items()
        }
        if apart:
            first = next(iter(variants.values()))
            running[apart] = Apart([stack.enter_context(Variant(apart, first, 1, warm_up)) for _ in range(2)])
        turns: dict[str, list[Measurement]] = {name: [] for name in running}
        for turn in range(repeats):
            for name, variant in turn_order(running.items(), turn):
                turns[name].append(variant.turn(steps))
        return turns


class Variant(VariantProcess):
    """The one or two processes of a training."""

    def __init__(self, name: str, body: Body, processes: int, warm_up: int) -> None:
        super().__init__(name, _first, body, processes, warm_up)

    def turn(self, steps: int) -> Measurement:
        """Train a number of steps, and return their measurements."""
        self.begin(steps)
        return self.finish()

    def begin(self, steps: int) -> None:
        """Start a turn; `finish` waits for it."""
        self.connection.send(steps)

    def finish(self) -> Measurement:
        """Wait for the turn that was started."""
        return self.receive()


class Apart:
    """Independent trainings at the same time. A step is a step of one training, at the joint rate."""

    def __init__(self, variants: list[Variant]) -> None:
        self.variants = variants

    def turn(self, steps: int) -> Measurement:
        """Train a number of steps on each variant at the same time."""
        for variant in self.variants:
            variant.begin(steps)
        turns = [variant.finish() for variant in self.variants]
        return Measurement(sum(turn.cpu for turn in turns) / len(turns), max(turn.wall for turn in turns) / len(turns))


def _first(connection: Connection, body: Body, processes: int, warm_up: int) -> None:
    gate = Gate()
    threading.Thread(target=_serve, args=(connection, gate, warm_up), daemon=True).start()
    with TemporaryDirectory() as folder:
        # Each variant has a store on a free port of its own, so that variants with several processes do not collide.
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        spawn = get_context("spawn")
        for rank in range(1, processes):
            other = spawn.Process(target=_member, args=(body, folder, rank, processes, store.port), daemon=True)
            other.start()
        _train(body, gate, folder, 0, processes, store.port)


def train_alone(body: Body, gate: Gate, folder: str) -> None:
    """Run a training in this process, with a single thread, in a folder."""
    _train(body, gate, folder, 0, 1, 0)


def _member(body: Body, folder: str, rank: int, processes: int, port: int) -> None:
    _train(body, Gate(always_open=True), folder, rank, processes, port)


def _train(body: Body, gate: Gate, folder: str, rank: int, processes: int, port: int) -> None:
    # Runs, checkpoints and logs of a variant go into its temporary folder.
    os.chdir(folder)
    torch.set_num_threads(1)
    if processes > 1:  # the variables of torchrun
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": Path(folder).name,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
        }
    body(gate)


def _serve(connection: Connection, gate: Gate, warm_up: int) -> None:
    gate.run(warm_up)
    connection.send(None)
    while True:
        try:
            steps = connection.recv()
        except EOFError:  # the benchmark was killed, and no other process ends this training
            os._exit(1)
        reset_peak()
        # The time starts after the reset of the peak, which takes time itself.
        cpu, wall = _cpu_seconds(), time.perf_counter()
        gate.run(steps)
        cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
        connection.send(Measurement(cpu / steps, wall / steps, peak()))


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants."""
    spent = time.process_time()
    # The other ranks and loader workers belong to the variant, too.
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        spent += times.user + times.system
    return spent
