"""Measures a process group: correctness of all-reduce, latency and bandwidth between nodes, clock skew.

All ranks call the same functions in the same order.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

LIMIT = timedelta(seconds=30)
"""Time limit of an exchange, in seconds."""

_NUMBERS = 1 << 21  # float32, 8 MiB: about a bucket of DDP
_ROUNDS = 5
_PINGS = 20
_LARGEST = 1 << 24  # bytes that two nodes exchange at most


class Link(NamedTuple):
    """Measurements between two ranks."""

    latency: float
    """Seconds in one direction, the minimum of many."""
    bandwidth: float
    """Bytes per second."""
    skew: float
    """Seconds by which the clock of the second rank is ahead."""
    error: float
    """Largest error of `skew` in seconds."""


def check_all_reduce(device: torch.device) -> tuple[bool, float]:
    """Return whether an all-reduce gives the correct sum, and the seconds of an all-reduce of 8 MiB."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    # Integers of this size are exact in float32, so sums can be compared for equality.
    base = torch.arange(_NUMBERS, device=device, dtype=torch.float32) % 1024
    seconds, correct = [], True
    for _ in range(_ROUNDS):
        values = base + rank
        began = time.perf_counter()
        _wait(dist.all_reduce(values, async_op=True), device)
        correct = correct and bool((values == base * world_size + world_size * (world_size - 1) // 2).all())
        seconds.append(time.perf_counter() - began)
    return correct, min(seconds)


def links(leaders: Sequence[int], device: torch.device) -> dict[tuple[int, int], Link]:
    """Measure every pair of `leaders`; each rank returns the pairs in which it is the first.

    The pairs follow a round-robin schedule: in every round a rank is in one pair at most, so pairs do not interfere.
    """
    measurements = {}
    for pairs in round_robin_pairs(leaders):
        for first, second in pairs:
            if dist.get_rank() == first:
                measurements[first, second] = _measure(second, device)
            elif dist.get_rank() == second:
                _echo(first, device)
        # A barrier: the next round begins once all pairs are measured.
        _wait(dist.all_reduce(torch.zeros(1, device=device), async_op=True), device)
    return measurements


def round_robin_pairs(ranks: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return rounds in which every pair occurs once (the circle method)."""
    circle: list[int | None] = [*ranks, *([None] * (len(ranks) % 2))]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        # The first stays in its place, the others rotate.
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


def _measure(peer: int, device: torch.device) -> Link:
    best, skew = float("inf"), 0.0
    for _ in range(_PINGS):
        stamp = torch.zeros(1, dtype=torch.float64, device=device)
        sent = time.time()
        began = time.perf_counter()
        _send(stamp, peer)
        _receive(stamp, peer)
        peer_time = float(stamp)
        trip = time.perf_counter() - began
        if trip < best:  # the fastest round trip has the smallest error of the skew
            best, skew = trip, peer_time - (sent + trip / 2)
    size, bandwidth = 1 << 20, 0.0
    while size <= _LARGEST:
        _send(torch.tensor([size], device=device), peer)
        load = torch.zeros(size, dtype=torch.uint8, device=device)
        began = time.perf_counter()
        _send(load, peer)
        _receive(load[:1], peer)
        seconds = time.perf_counter() - began
        bandwidth = max(bandwidth, size / seconds)
        # A slow link gets no larger load: the loop ends.
        size *= 4 if seconds < 0.2 else _LARGEST
    _send(torch.tensor([0], device=device), peer)
    return Link(best / 2, bandwidth, skew, best / 2)


def _echo(peer: int, device: torch.device) -> None:
    for _ in range(_PINGS):
        stamp = torch.zeros(1, dtype=torch.float64, device=device)
        _receive(stamp, peer)
        _send(torch.tensor([time.time()], dtype=torch.float64, device=device), peer)
    while True:
        size = torch.zeros(1, dtype=torch.int64, device=device)
        _receive(size, peer)
        if not int(size):
            return
        load = torch.zeros(int(size), dtype=torch.uint8, device=device)
        _receive(load, peer)
        _send(load[:1], peer)


def _send(values: Tensor, peer: int) -> None:
    _wait(dist.isend(values, peer), values.device)


def _receive(values: Tensor, peer: int) -> None:
    _wait(dist.irecv(values, peer), values.device)


def _wait(work: Any, device: torch.device) -> None:
    """Wait for an exchange. Gloo's timeout raises; NCCL's would end the process, so NCCL is polled.

    Raises:
        RuntimeError: the exchange has failed or exceeded `LIMIT`.
    """
    if device.type == "cpu":
        work.wait(LIMIT)
        return
    deadline = time.monotonic() + LIMIT.total_seconds()
    while not work.is_completed():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not finished after {LIMIT.total_seconds():.0f} s")
        time.sleep(0)
    work.wait()
