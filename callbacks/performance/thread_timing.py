"""Times training passes on a CPU with one thread and with several, before training."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from callbacks.performance.trial_pass import trial_pass
from callbacks.performance.trial_samples import first_samples
from engine.datamodule import LockstepDataModule
from engine.distributed.collectives import all_reduce_max
from engine.module import LockstepModule
from engine.run_trainer import as_run_trainer

log = logging.getLogger("lockstep")

_CPU = torch.device("cpu")

_MIN_SECONDS = 1.0
"""Total time of the compared passes: many scheduler periods, but no delay that a user notices."""

_MAX_PASS_SECONDS = 10.0
"""Longest single-threaded pass, as estimated from a pass with all threads. A longer pass gets fewer samples."""


class Rates(NamedTuple):
    """Samples per second over all ranks, forward and backward, without the optimizer."""

    single_thread: float
    multi_thread: float


def reason_not_timed(trainer: Trainer, pl_module: LockstepModule) -> str:
    """Return why passes before training are not possible, or an empty string."""
    if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
        return f"{type(trainer.strategy).__name__} shards the weights"
    if trainer.world_size > 1 and not pl_module.supports_grad_accumulation:
        return "the loss needs the samples of all ranks"
    return ""


def time_threads(trainer: Trainer, pl_module: LockstepModule, threads: int) -> Rates | None:
    """Time passes of the first micro-batch with one thread and with `threads`, alternately.

    All ranks call this function and compute at the same time, as in training. The slowest rank counts, so all ranks
    return the same rates.

    Args:
        trainer: trainer of the run, in `setup`.
        pl_module: module whose `configure_model` has run.
        threads: number of threads to compare with one thread.

    Returns:
        The rates, or None if a rank cannot compute the pass or one sample takes too long with one thread. An error is
        left to training, which reports it with the step and the samples.
    """
    threads_before = torch.get_num_threads()
    data = as_run_trainer(trainer).datamodule
    size = data.plan.micro_batch_size
    try:
        # At most two rounds: the whole micro-batch, and if that takes too long, the part that fits the time.
        for is_last in (False, True):
            batch, all_loaded = _load_batch(data, size)
            if not all_loaded:
                return None
            with trial_pass(trainer, pl_module, batch) as run_pass:
                seconds = _time_pass(run_pass, threads)
                if seconds < _MIN_SECONDS:  # the first pass includes one-time costs, such as allocations
                    seconds = _time_pass(run_pass, threads)
                # Estimate the single-threaded time as if threads scaled perfectly, which is an upper bound.
                fitting = int(size * min(1.0, _MAX_PASS_SECONDS / (seconds * threads)))
                if fitting == size or fitting and is_last:
                    return _compare(run_pass, threads, size * trainer.world_size)
            if fitting == 0:
                return None
            size = fitting
        return None
    finally:
        torch.set_num_threads(threads_before)


def _load_batch(data: LockstepDataModule, size: int) -> tuple[Any, bool]:
    """Return a micro-batch, and whether every rank has loaded its own."""
    try:
        batch = first_samples(data, size)
    except Exception:
        log.debug("threads: the first micro-batch cannot be loaded", exc_info=True)
        batch = None
    return batch, all_reduce_max(batch is None, _CPU) == 0


def _compare(run_pass: Callable[[], None], threads: int, samples: int) -> Rates | None:
    _time_pass(run_pass, 1)  # warm-up
    single, multi, passes = 0.0, 0.0, 0
    # Alternating passes see the same load of other programs.
    while single + multi < _MIN_SECONDS:
        single += _time_pass(run_pass, 1)
        multi += _time_pass(run_pass, threads)
        passes += 1
    # All ranks hold the same sums, so all return None or the same rates.
    return Rates(samples * passes / single, samples * passes / multi) if math.isfinite(single + multi) else None


def _time_pass(run_pass: Callable[[], None], threads: int) -> float:
    """Return the seconds of a pass on the slowest rank; infinite if it fails on any rank."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    try:
        run_pass()
        seconds = time.perf_counter() - start
    except Exception:
        log.debug("threads: a pass before training fails", exc_info=True)
        seconds = math.inf
    return all_reduce_max(seconds, _CPU)
