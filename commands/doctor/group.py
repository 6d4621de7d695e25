"""What a process group does: whether sums are right, how fast the nodes exchange, and how far their clocks differ.

All processes call the same functions in the same order.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

LIMIT = timedelta(seconds=30)
"""For one exchange: a process that is gone is noticed after that."""

_NUMBERS = 1 << 21  # float32, 8 MiB: about a bucket of DDP
_ROUNDS = 5
_PINGS = 20
_LARGEST = 1 << 24  # bytes that two nodes send each other


class Link(NamedTuple):
    """What was measured between two processes."""

    latency: float
    """Seconds one way, the best of many."""
    bandwidth: float
    """Bytes a second."""
    skew: float
    """How much later the second one's clock is, in seconds."""
    doubt: float
    """By how much that may be wrong, in seconds."""


def sum_is_right(device: torch.device) -> tuple[bool, float]:
    """(whether an all-reduce gives the right sum, seconds of one of 8 MiB)."""
    rank, processes = dist.get_rank(), dist.get_world_size()
    places = torch.arange(_NUMBERS, device=device, dtype=torch.float32) % 1024
    seconds, right = [], True
    for _ in range(_ROUNDS):
        values = places + rank
        began = time.perf_counter()
        _wait(dist.all_reduce(values, async_op=True), device)
        right = right and bool((values == places * processes + processes * (processes - 1) // 2).all())
        seconds.append(time.perf_counter() - began)
    return right, min(seconds)


def links(leaders: Sequence[int], device: torch.device) -> dict[tuple[int, int], Link]:
    """Of every pair of the processes in `leaders`; each process gets those in which it is the first.

    As in a round-robin tournament: in every round each process is in one pair at most, so none disturbs another.
    """
    found = {}
    for pairs in tournament(leaders):
        for first, second in pairs:
            if dist.get_rank() == first:
                found[first, second] = _ask(second, device)
            elif dist.get_rank() == second:
                _answer(first, device)
        _wait(dist.all_reduce(torch.zeros(1, device=device), async_op=True), device)
    return found


def tournament(players: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Rounds in which everybody meets everybody else once (the circle method)."""
    circle: list[int | None] = [*players, *([None] * (len(players) % 2))]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


def _ask(other: int, device: torch.device) -> Link:
    best, skew = float("inf"), 0.0
    for _ in range(_PINGS):
        word = torch.zeros(1, dtype=torch.float64, device=device)
        sent = time.time()
        began = time.perf_counter()
        _send(word, other)
        _receive(word, other)
        theirs = float(word)
        trip = time.perf_counter() - began
        if trip < best:  # the quickest one was held up least, so its middle is the surest
            best, skew = trip, theirs - (sent + trip / 2)
    size, bandwidth = 1 << 20, 0.0
    while size <= _LARGEST:
        _send(torch.tensor([size], device=device), other)
        load = torch.zeros(size, dtype=torch.uint8, device=device)
        began = time.perf_counter()
        _send(load, other)
        _receive(load[:1], other)
        seconds = time.perf_counter() - began
        bandwidth = max(bandwidth, size / seconds)
        size *= 4 if seconds < 0.2 else _LARGEST
    _send(torch.tensor([0], device=device), other)
    return Link(best / 2, bandwidth, skew, best / 2)


def _answer(other: int, device: torch.device) -> None:
    for _ in range(_PINGS):
        word = torch.zeros(1, dtype=torch.float64, device=device)
        _receive(word, other)
        _send(torch.tensor([time.time()], dtype=torch.float64, device=device), other)
    while True:
        size = torch.zeros(1, dtype=torch.int64, device=device)
        _receive(size, other)
        if not int(size):
            return
        load = torch.zeros(int(size), dtype=torch.uint8, device=device)
        _receive(load, other)
        _send(load[:1], other)


def _send(values: Tensor, other: int) -> None:
    _wait(dist.isend(values, other), values.device)


def _receive(values: Tensor, other: int) -> None:
    _wait(dist.irecv(values, other), values.device)


def _wait(work: Any, device: torch.device) -> None:
    """Gloo's own limit raises; NCCL's would end the process, so it is asked and not waited for.

    Raises:
        RuntimeError: the exchange has failed, or not ended in time.
    """
    if device.type == "cpu":
        work.wait(LIMIT)
        return
    deadline = time.monotonic() + LIMIT.total_seconds()
    while not work.is_completed():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no end after {LIMIT.total_seconds():.0f} s")
        time.sleep(0)
    work.wait()
