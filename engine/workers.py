"""Loader workers: how they are started, and at which sample each of them is, for whoever finds one dead.

A worker that is killed (out of memory, a decoder that crashes) can say nothing. So each keeps the index of the sample
it is at in a few bytes that the training process can read.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterable
from ctypes import c_int64
from typing import Any, Literal

from engine.stop_signals import outlive_the_step

WorkerStart = Literal["fork", "forkserver", "spawn"]

_NOWHERE = -1
_place: tuple[Any, int] | None = None  # of a worker: the array of all workers' places, and its own number


def at(sample: int) -> None:
    """For a data set that makes its samples one by one: it begins with this one. Does nothing outside of a worker."""
    if _place is not None:
        places, worker = _place
        places[worker] = sample


class Workers:
    """What a DataLoader needs to know to start its workers; its `worker_init_fn`, too.

    Args:
        number: of workers.
        start: `fork` (at once, with what the training process has in memory), `spawn` (each imports everything anew,
            which takes seconds, and is safe beside threads and CUDA) or `forkserver` (as safe, forked from a small
            process); None takes Python's default for the platform.
        processes: training processes of this machine, each of which has as many workers.
    """

    def __init__(self, number: int, start: WorkerStart | None = None, processes: int = 1) -> None:
        available = multiprocessing.get_all_start_methods()
        if start is not None and start not in available:
            raise ValueError(
                f"data.init_args.worker_start is {start}, but this platform has {', '.join(available)} alone"
            )
        self.context = multiprocessing.get_context(start)
        self._places = self.context.RawArray(c_int64, [_NOWHERE] * number)
        self._trainer, self.processes = os.getpid(), processes

    def __call__(self, worker: int) -> None:
        global _place
        # Under forkserver the parent is another process than the one whose word counts.
        outlive_the_step(worker, self._trainer)
        _place = self._places, worker

    def begin(self) -> None:
        """In the training process, before workers are started: nobody is anywhere."""
        self._places[:] = [_NOWHERE] * len(self._places)
        if self.context.get_start_method() == "forkserver":
            _start_forkserver()

    def places(self, workers: Iterable[int]) -> list[int]:
        """The samples that these workers were at when last heard of; nothing of data sets that do not say."""
        return [place for place in (self._places[worker] for worker in workers) if place != _NOWHERE]


def _start_forkserver() -> None:
    """What a scheduler sends to all processes must not end the process that the workers hang on."""
    from multiprocessing.forkserver import ensure_running  # not on Windows

    told = {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, told)  # a new process inherits it
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
