"""Defines the training that two machines share: the tower of benchmarks/engine in the engine, a process per machine."""

import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.engine.interleaving import Gate, Variant
from benchmarks.engine.mlp import tower
from benchmarks.engine.trainings import lockstep
from benchmarks.network.machines import Machines
from benchmarks.network.namespaces import enter
from benchmarks.variant_process import VariantProcess

SAMPLES_A_MACHINE = 120
"""Batch size of a step of about 20 ms on one core."""

Options = tuple[str, ...]
"""Options of `train.py fit`."""


class Measurement(NamedTuple):
    """Mean of the steps of a turn."""

    seconds: float
    sent: float  # bytes that the first machine has sent


class Alone:
    """Training of a single machine on one core."""

    def __init__(self, stack: ExitStack, warm_up: int) -> None:
        # Pushed and not entered, so that the stack ends the process after an error as well.
        self._variant = stack.push(Variant("one machine", partial(_train, machines=1, rank=0, options=()), 1, warm_up))
        self._variant.receive()

    def turn(self, steps: int) -> Measurement:
        """Train a number of steps."""
        return Measurement(self._variant.turn(steps).wall, 0.0)


class Together:
    """Training of two machines, each on its own core.

    Args:
        stack: ends the training when it is closed.
        machines: connected machines.
        folder: empty folder for the run's files.
        port: port on the first machine, unique to this training.
        warm_up: steps before the first turn.
        options: further options of the training.
    """

    def __init__(
        self, stack: ExitStack, machines: Machines, folder: Path, port: int, warm_up: int, options: Options = ()
    ) -> None:
        self._machines = machines
        self._variants = []
        for rank, name in enumerate(machines.names):
            body = partial(
                _train_with_the_other,
                name=name,
                rank=rank,
                address=machines.addresses[0],
                port=port,
                folder=folder,
                options=options,
            )
            self._variants.append(stack.push(Variant(f"machine {rank}", body, 1, warm_up)))
        received(self._variants)  # after both have been started, as each waits for the other

    def turn(self, steps: int) -> Measurement:
        """Train a number of steps on both machines."""
        sent = self._machines.sent(0)
        for variant in self._variants:
            variant.begin(steps)
        # The slower machine: the next step cannot start before both have the gradients.
        seconds = max(turn.wall for turn in received(self._variants))
        return Measurement(seconds, (self._machines.sent(0) - sent) / steps)


def received(variants: Sequence[VariantProcess]) -> list[Any]:
    """Return the next message of each connection, in order.

    Raises:
        RuntimeError: a process has ended; raised at once, as the other would wait for it until torch's timeout.
    """
    waiting: dict[object, VariantProcess] = {variant.connection: variant for variant in variants}
    answers = []
    while waiting:
        for connection in wait([variant.connection for variant in waiting.values()]):
            answers.append(waiting.pop(connection).receive())
    return answers


def gradient_bytes() -> int:
    """Return the bytes of a step's gradients in fp32."""
    return sum(parameter.numel() * 4 for parameter in tower().parameters())


def _train_with_the_other(
    gate: Gate, *, name: str, rank: int, address: str, port: int, folder: Path, options: Options
) -> None:
    enter(name)
    os.chdir(folder)
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "eth0",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": folder.name,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "RANK": str(rank),
        "GROUP_RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
    }
    _train(gate, machines=2, rank=rank, options=options)


def _train(gate: Gate, *, machines: int, rank: int, options: Options) -> None:
    # Each machine has a core of its own: on shared cores a second machine would slow the first.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    warnings.filterwarnings("ignore", "The number of training batches")  # so few log entries are intended
    lockstep(
        gate,
        options=[
            "--model=benchmarks.engine.mlp.Tower",
            "--data=benchmarks.engine.mlp.TowerData",
            f"--data.init_args.batch_size={SAMPLES_A_MACHINE * machines}",
            "--best_checkpoint.monitor=none",
            f"--trainer.num_nodes={machines}",
            "--trainer.log_every_n_steps=100000000",
            "--watchdog.timeout",
            "3600",  # it waits while others have their turns
            *options,
        ],
    )
