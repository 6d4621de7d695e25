"""Times functions in alternating turns, on a GPU with its own clock."""

import time
from collections.abc import Callable, Mapping

import torch

from benchmarks.device.part import NEEDS_CUDA
from benchmarks.turn_order import turn_order

Work = Callable[[], object]

_WARM_UP = 3
_TURN = 0.2
"""Approximate seconds per measurement, long compared with starting and stopping the clock."""


def take_turns(works: Mapping[str, Work], device: str, repeats: int, seconds: float = _TURN) -> dict[str, list[float]]:
    """Return the seconds of one call of each function, in each of `repeats` turns.

    Calls follow each other as in a training, without waiting for the device. On a GPU the time is that from the start
    of the first call to the end of the last call, whether kernels or kernel launches take it. The order is reversed in
    every other turn.
    """
    calls = {}
    for name, work in works.items():
        for _ in range(_WARM_UP):
            work()
        # So many calls that starting and stopping the clock do not matter, and a turn still ends soon.
        calls[name] = max(1, min(1000, round(seconds / _time_calls(work, device, 1))))
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats):
        for name in turn_order(works, turn):
            works[name]()  # evicts what the previous variant left in caches
            found[name].append(_time_calls(works[name], device, calls[name]))
    return found


def _time_calls(work: Work, device: str, calls: int) -> float:
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - start) / calls
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    # Events are recorded on the device, so launches and kernels overlap as in a training.
    first.record()
    for _ in range(calls):
        work()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / calls


def memory_of(work: Work, device: str) -> float | str:
    """Return the peak memory in GB of a call that frees all its results, above the memory before the call."""
    if device == "cpu":
        return NEEDS_CUDA
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 1e9
