"""Measures the active time of a GPU in a step and the number of kernels, from the profiler's trace."""

import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.device.measures.timing import Work

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Busy(NamedTuple):
    """Activity of a step."""

    seconds: float  # seconds with at least one active kernel
    kernels: float  # including copies and fills


def busy(work: Work, steps: int = 10) -> Busy:
    """Return the mean activity of several steps on a GPU.

    Raises:
        RuntimeError: the profiler recorded no kernel.
    """
    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            work()
        torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in events if event.get("cat") in _ON_DEVICE]
    if not spans:
        raise RuntimeError("the profiler has seen no kernel on the GPU: CUPTI does not work on this machine")
    return Busy(covered(spans) / 1e6 / steps, len(spans) / steps)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of the intervals (start, end)."""
    total, reached = 0.0, float("-inf")
    # Kernels of several streams overlap; a time counts once.
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
