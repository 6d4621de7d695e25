"""Measures how fast a core loads samples, and predicts how many loader workers the device needs."""

import math
import time
from itertools import islice
from typing import NamedTuple

import torch

from commands.doctor.check import Finding
from engine.data.dataloader import TimedDataLoader
from engine.data.stream import StreamBatch
from engine.system.cpu_count import available_cpus, num_loader_workers

_SECONDS = 1.0
"""Seconds after which no further micro-batch is loaded."""
_MAX_MICRO_BATCHES = 50
"""Largest number of micro-batches that are loaded."""
_MAX_HIDDEN_SHARE = 0.05
"""Share of a step that loading in the training process may take; `wait` is good below it."""
_MAX_WAITING_SHARE = 0.2
"""Share of waiting above which a training logs a warning."""


class LoaderThroughput(NamedTuple):
    """How many loader workers a training has, and how many its device needs."""

    needed: int
    workers: int
    waiting_share: float
    """Predicted share of the time that the training waits for its loaders."""


def time_loading(loader: TimedDataLoader) -> float | None:
    """Return the seconds of a core that loading a sample takes; None if it cannot be loaded again.

    The first micro-batches are loaded again, so that their files are in the page cache: waiting for a disk is not
    counted, as other workers load meanwhile.
    """
    samples, began, used = 0, time.monotonic(), time.process_time()
    try:
        for request in islice(loader.sampler.sampler, _MAX_MICRO_BATCHES):
            batch = loader.dataset[request].batch
            if isinstance(batch, StreamBatch) and not batch.records:  # the epoch has ended
                break
            samples += len(request.indices)
            if time.monotonic() - began > _SECONDS:
                break
    except Exception:  # noqa: BLE001  (a sample may raise anything; the training reports it)
        return None
    return (time.process_time() - used) / samples if samples else None


def predict_throughput(sample: float, size: int, step: float, workers: int) -> LoaderThroughput:
    """Predict whether the loader workers feed the device.

    Args:
        sample: seconds of a core to load a sample.
        size: samples of a micro-batch.
        step: seconds that the device computes a micro-batch.
        workers: loader workers of a rank; 0 loads in the training process, between two steps.
    """
    load = sample * size
    needed = 0 if load <= _MAX_HIDDEN_SHARE * step else math.ceil(load / step)
    waiting = load if workers == 0 else max(0.0, load / workers - step)
    return LoaderThroughput(needed, workers, waiting / (step + waiting))


def planned_workers(setting: int | str, ranks_per_node: int, on_gpu: bool, in_memory: bool) -> int:
    """Return the loader workers of a rank: `data.init_args.num_workers`, or what `auto` stands for here."""
    if isinstance(setting, int):
        return setting
    computing = 1 if on_gpu else torch.get_num_threads()
    return 0 if in_memory else num_loader_workers(available_cpus(), ranks_per_node, computing)


def throughput_finding(
    sample: float, size: int, step: float, device: torch.device, workers: int, ranks_per_node: int
) -> Finding:
    """Report whether the loaders are fast enough.

    Args:
        sample: see `predict_throughput`.
        size: see `predict_throughput`.
        step: see `predict_throughput`.
        device: device that computes the step.
        workers: see `predict_throughput`.
        ranks_per_node: ranks that share the cores of a node.
    """
    throughput = predict_throughput(sample, size, step, workers)
    supply = (
        f"{_workers(throughput.needed)} feed{'s' * (throughput.needed == 1)} it"
        if throughput.needed
        else "the training process feeds it"
    )
    found = (
        f"a sample takes {_milliseconds(sample)} of a core ({1 / max(sample, 1e-9):,.0f} a second), a step of {size} "
        f"{_milliseconds(step)} on {device}: {supply}; {_workers(workers)} {'is' if workers == 1 else 'are'} set"
    )
    if device.type == "cpu" or throughput.waiting_share <= _MAX_WAITING_SHARE:
        return Finding("loaders", "ok", found)
    cores, here = ranks_per_node * (throughput.needed + 1), available_cpus()
    remedy = f"--data.init_args.num_workers {throughput.needed}"
    if cores > here:
        remedy += f"  # needs {cores} cores, of {here:g} here"
    why = f"the device would wait {throughput.waiting_share:.0%} of the time for its data"
    return Finding("loaders", "warn", found, why, remedy)


def _workers(number: int) -> str:
    return f"{number} worker" + "s" * (number != 1)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
