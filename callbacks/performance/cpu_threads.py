"""Sets the number of CPU threads that each rank computes with (`--threads`).

The number of threads determines the order of some sums, so a bit-identical training needs the same number. A run
records it in environment.json and in its checkpoints, and a resumed run uses the recorded number.
"""

import logging
from typing import NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.health.watchdog import extended_timeout
from callbacks.performance.thread_timing import Rates, reason_not_timed, time_threads
from engine.distributed.collectives import all_reduce_min
from engine.lightning_internals.training_loop import configure_model
from engine.module import LockstepModule, as_lockstep_module
from engine.system.cpu_count import available_cpus

log = logging.getLogger("lockstep")

THREADS_KEY = "threads"
"""Key in a checkpoint: {"number": threads of rank 0, "processes": world size}."""

_MIN_SPEEDUP = 1.2
"""Least speed-up that is worth several threads. One thread waits for no other, so other programs slow it down less."""


class KnownThreads(NamedTuple):
    """What is known about the number of threads before the ranks connect. It is equal on all ranks."""

    set_by: str = ""
    """Option or variable that sets the number. The ranks already use it."""

    recorded: int | None = None
    """Number in the run or checkpoint that is resumed or evaluated."""

    processes: int | None = None
    """World size with which `recorded` was recorded."""


class ThreadChoice(NamedTuple):
    """Number of threads, and the reason for it that is logged."""

    number: int
    reason: str
    """End of the log line, with the separator before it."""


class CpuThreads(Callback):
    """Sets the number of intra-op threads of ranks that compute on a CPU.

    - A number that is set by an option or a variable is kept; nothing is timed.
    - A training that resumes with the same world size uses the recorded number, so that it stays bit-identical.
    - Any other training times passes with one thread and with the rank's share of the cores. All ranks use the same
      number.
    - An evaluation uses the recorded number, at most the rank's share of the cores.

    Args:
        known: see KnownThreads.
    """

    def __init__(self, known: KnownThreads) -> None:
        self.known = known

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.strategy.root_device.type != "cpu":
            return
        if self.known.set_by:
            self._report_stated(trainer, stage)
            return
        choice = (
            self._for_training(trainer, as_lockstep_module(pl_module))
            if stage == "fit"
            else self._for_evaluation(trainer)
        )
        torch.set_num_threads(choice.number)
        log.info("threads: %d%s", choice.number, choice.reason)

    @override
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        if trainer.strategy.root_device.type == "cpu":
            checkpoint[THREADS_KEY] = {"number": torch.get_num_threads(), "processes": trainer.world_size}

    def _report_stated(self, trainer: Trainer, stage: str) -> None:
        number, recorded = torch.get_num_threads(), self.known.recorded
        log.debug("threads: %d, set by %s", number, self.known.set_by)
        # With another world size the training differs by rounding anyway.
        same_run = stage == "fit" and self.known.processes == trainer.world_size
        if same_run and recorded not in (None, number):
            log.info(
                "threads: %d, set by %s; the run began with %d, so it resumes within rounding, not bit for bit",
                number, self.known.set_by, recorded,
            )  # fmt: skip

    def _for_training(self, trainer: Trainer, pl_module: LockstepModule) -> ThreadChoice:
        recorded, share = self.known.recorded, _min_share(trainer)
        if recorded is not None and self.known.processes == trainer.world_size:
            advice = f"; the share of a rank is {share}: --threads {share} uses it" if recorded > share else ""
            return ThreadChoice(recorded, f", as recorded by the run{advice}")
        if share == 1:
            return ThreadChoice(1, ", the share of the cores of a rank")
        reason = reason_not_timed(trainer, pl_module)
        if not reason:
            configure_model(trainer)  # Lightning repeats the call after setup; configure_model is idempotent
            with extended_timeout(trainer, "start-up, timing threads"):
                rates = time_threads(trainer, pl_module, share)
            if rates is not None:
                return _faster(rates, share)
            reason = "a pass fails or takes too long"
        # Without a measurement, several threads are the better guess; they are many times slower on busy cores.
        return ThreadChoice(
            share,
            f", the share of the cores of a rank (not timed: {reason}); "
            "if other programs use the cores, --threads 1 is faster",
        )

    def _for_evaluation(self, trainer: Trainer) -> ThreadChoice:
        recorded, share = self.known.recorded, _min_share(trainer)
        if recorded is None:
            return ThreadChoice(share, ", the share of the cores of a rank (the checkpoint records no number)")
        if recorded <= share:
            return ThreadChoice(recorded, ", as recorded by the run")
        return ThreadChoice(share, f" of {recorded} recorded")


def _faster(rates: Rates, share: int) -> ThreadChoice:
    """Return one thread, unless `share` threads are faster by `_MIN_SPEEDUP`."""
    single, multi = rates
    if multi < _MIN_SPEEDUP * single:
        return ThreadChoice(1, f" of {share} ({single:,.0f} samples/s against {multi:,.0f})")
    return ThreadChoice(share, f" of {share} ({multi:,.0f} samples/s against {single:,.0f})")


def _min_share(trainer: Trainer) -> int:
    """Return the number of cores per rank on the machine that has the fewest per rank."""
    # The machine with the fewest cores per rank decides: all ranks use the same number.
    ranks_here = min(trainer.num_devices, trainer.world_size)
    return int(all_reduce_min(max(1, int(available_cpus() / ranks_here)), trainer.strategy.root_device))
