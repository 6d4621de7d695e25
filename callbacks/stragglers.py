"""Which process the others wait for, when it does not stand still but is merely slower."""

import logging
import statistics
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from engine.events import event
from engine.gather import gathered

log = logging.getLogger("lockstep")


class Stragglers(Callback):
    """Logs `train/slowest_process` and `train/slowest_over_median`, and names a process that is much slower than most.

    Compared is the time per optimizer step that a process spends by itself: waiting for its loader, and from there to
    the backward pass, in which the processes begin to wait for each other. On a GPU this is the time that the process
    needs to launch the work: a slow loader or a busy CPU shows, a slow GPU does not. train.log has the share of the
    time that each process waited for data. Of one process alone there is nothing to compare.

    Args:
        every_n_steps: optimizer steps between comparisons; each is one small all-gather.
        warn_over_median: how many times the median's time a process may take before it is named on the console.
    """

    def __init__(self, every_n_steps: int = 100, warn_over_median: float = 2.0) -> None:
        if every_n_steps < 1:
            raise ValueError(f"stragglers.every_n_steps must be at least 1, got {every_n_steps}")
        if warn_over_median <= 1:
            raise ValueError(f"stragglers.warn_over_median must be more than 1, got {warn_over_median}")
        self.every_n_steps, self.warn_over_median = every_n_steps, warn_over_median

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._reset(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._batch_began = time.perf_counter()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        self._computed += time.perf_counter() - self._batch_began

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        steps = trainer.global_step - self._steps
        if trainer.world_size == 1 or steps < self.every_n_steps:
            return
        waited = (trainer.train_dataloader.waited - self._waited) / steps
        own = torch.tensor([waited + self._computed / steps, waited], device=trainer.strategy.root_device)
        seconds, waits = gathered(own).T.tolist()
        slowest, ratio = compare(seconds)
        pl_module.log_dict(
            {"train/slowest_process": float(slowest), "train/slowest_over_median": ratio},
            batch_size=1,
        )
        if trainer.is_global_zero:
            self._tell(seconds, waits, slowest, ratio)
        self._reset(trainer)

    def _tell(self, seconds: list[float], waits: list[float], slowest: int, ratio: float) -> None:
        shares = [f"{wait / second:.0%}" for second, wait in zip(seconds, waits, strict=True)]
        log.debug(
            "own time per step, and the share of it in waiting for data: %s",
            ", ".join(f"process {rank} {1000 * seconds[rank]:.1f} ms, {share}" for rank, share in enumerate(shares)),
        )
        if ratio > self.warn_over_median:
            log.warning(
                "process %d is slow: %.1f ms of its own per step, %.1f times the others' median, %s of it waiting for "
                "data; the others wait for it",
                slowest, 1000 * seconds[slowest], ratio, shares[slowest],
                extra=event("straggler", process=slowest, seconds_per_step=seconds[slowest], over_median=ratio),
            )  # fmt: skip

    def _reset(self, trainer: Trainer) -> None:
        self._steps, self._computed = trainer.global_step, 0.0
        self._waited = trainer.train_dataloader.waited


def compare(seconds: list[float]) -> tuple[int, float]:
    """The slowest process, and its time over the median of the others'."""
    slowest = max(range(len(seconds)), key=seconds.__getitem__)
    median = statistics.median(second for rank, second in enumerate(seconds) if rank != slowest)
    return slowest, seconds[slowest] / max(median, 1e-9)
