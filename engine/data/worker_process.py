"""Starts loader workers, and records in shared memory which sample each worker is loading.

A worker that is killed (out of memory, a crashing decoder) cannot report anything. Each worker therefore writes the
index of its current sample to a few bytes of memory that the training process can read.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterable
from ctypes import c_int64
from typing import Any, Literal

from engine.health.signals import ignore_signals_in_worker

WorkerStart = Literal["fork", "forkserver", "spawn"]

_NO_SAMPLE = -1
_slot: tuple[Any, int] | None = None  # in a worker: the positions of all workers, and its own index in them


def report_position(sample: int) -> None:
    """Record that this worker begins to load a sample. Does nothing outside of a worker.

    For data sets that load their samples one by one.
    """
    if _slot is not None:
        positions, worker = _slot
        positions[worker] = sample


class Workers:
    """The workers of one DataLoader; also its `worker_init_fn`.

    Args:
        number: number of workers.
        start: `fork` (fast, shares the memory of the training process), `spawn` (imports everything again, which takes
            seconds, and is safe with threads and CUDA) or `forkserver` (as safe, forked from a small process). None:
            Python's default for the platform.
        local_world_size: training processes of this machine, each of which has as many workers.

    Raises:
        ValueError: the platform does not have this start method.
    """

    def __init__(self, number: int, start: WorkerStart | None = None, local_world_size: int = 1) -> None:
        available = multiprocessing.get_all_start_methods()
        if start is not None and start not in available:
            raise ValueError(f"data.init_args.worker_start is {start}, but this platform has {', '.join(available)}")
        self.context = multiprocessing.get_context(start)
        # There is no lock, which a worker that is killed could keep. A worker writes its own element only.
        self._positions = self.context.RawArray(c_int64, [_NO_SAMPLE] * number)
        self._training_pid, self.local_world_size = os.getpid(), local_world_size

    def __call__(self, worker: int) -> None:
        """Initialize a worker process before it loads anything."""
        global _slot
        # With forkserver, the parent process is not the training process.
        ignore_signals_in_worker(worker, self._training_pid)
        _slot = self._positions, worker

    def prepare_start(self) -> None:
        """Reset the positions. Called in the training process before its workers start."""
        self._positions[:] = [_NO_SAMPLE] * len(self._positions)
        if self.context.get_start_method() == "forkserver":
            _start_forkserver()

    def last_positions(self, workers: Iterable[int]) -> list[int]:
        """Return the last samples that these workers reported, without workers that reported none."""
        return [sample for sample in (self._positions[worker] for worker in workers) if sample != _NO_SAMPLE]


def _start_forkserver() -> None:
    """Start the forkserver with blocked signals.

    A scheduler sends its signals to all processes. The forkserver must survive them, because its workers end with it.
    """
    from multiprocessing import resource_tracker
    from multiprocessing.forkserver import ensure_running  # not on Windows

    # ensure_running would start the tracker, and that unblocks SIGTERM and SIGINT.
    resource_tracker.ensure_running()

    scheduler_signals = {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, scheduler_signals)  # inherited by a new process
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
