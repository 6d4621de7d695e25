"""Names a rank that is slower than the others but still makes progress."""

import logging
import statistics
import time

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.distributed.collectives import all_gather_tensor
from engine.number_check import check_number
from engine.run_trainer import as_run_trainer, leave_training
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")


class Stragglers(Callback):
    """Logs `train/slowest_rank` and `train/slowest_over_median`, and warns of a rank that is much slower than most.

    The callback compares the time per optimizer step that a rank spends outside of collectives: waiting for its loader,
    and computing up to the backward pass, where ranks begin to wait for each other. On a GPU this is the time to launch
    the kernels, so it detects a slow loader or a busy CPU but not a slow GPU. train.log has each rank's share of
    waiting for data. With a world size of 1 nothing is logged.

    Args:
        every_n_steps: optimizer steps between comparisons. A comparison costs one small all-gather.
        warn_over_median: ratio to the median time of the other ranks above which a rank is named on the console.
    """

    def __init__(self, every_n_steps: int = 100, warn_over_median: float = 2.0) -> None:
        check_number("stragglers.every_n_steps", every_n_steps, at_least=1)
        check_number("stragglers.warn_over_median", warn_over_median, above=1)
        self.every_n_steps, self.warn_over_median = every_n_steps, warn_over_median

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size == 1:
            leave_training(self, trainer)
        self._reset(trainer)

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        self._batch_start = time.perf_counter()

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        self._computed += time.perf_counter() - self._batch_start

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        steps = trainer.global_step - self._steps
        if steps < self.every_n_steps:
            return
        waited = (as_run_trainer(trainer).train_dataloader.waited - self._waited) / steps
        # Time in the backward pass is excluded: there a fast rank waits for a slow one.
        rank_seconds = torch.tensor([waited + self._computed / steps, waited], device=trainer.strategy.root_device)
        # [world size, 2], transposed
        seconds, waits = all_gather_tensor(rank_seconds).T.tolist()
        slowest, ratio = find_slowest(seconds)
        pl_module.log_dict(
            {"train/slowest_rank": float(slowest), "train/slowest_over_median": ratio},
            batch_size=1,
        )
        if trainer.is_global_zero:
            self._report(seconds, waits, slowest, ratio)
        self._reset(trainer)

    def _report(self, seconds: list[float], waits: list[float], slowest: int, ratio: float) -> None:
        shares = [f"{wait / second:.0%}" for second, wait in zip(seconds, waits, strict=True)]
        log.debug(
            "time per step outside of collectives, and the share of waiting for data in it: %s",
            ", ".join(f"rank {rank} {1000 * seconds[rank]:.1f} ms, {share}" for rank, share in enumerate(shares)),
        )
        if ratio > self.warn_over_median:
            log.warning(
                "rank %d is slow: %.1f ms per step, %.1f times the median of other ranks, %s of it waiting for data",
                slowest, 1000 * seconds[slowest], ratio, shares[slowest],
                extra=event("straggler", rank=slowest, seconds_per_step=seconds[slowest], over_median=ratio),
            )  # fmt: skip

    def _reset(self, trainer: Trainer) -> None:
        # Both times are measured from here to the next comparison.
        self._steps, self._computed = trainer.global_step, 0.0
        self._waited = as_run_trainer(trainer).train_dataloader.waited


def find_slowest(seconds: list[float]) -> tuple[int, float]:
    """Return the slowest rank, and the ratio of its time to the median of the other ranks."""
    # The median is without the slowest rank itself, so that the ratio of two ranks can exceed 2.
    slowest = max(range(len(seconds)), key=seconds.__getitem__)
    median = statistics.median(second for rank, second in enumerate(seconds) if rank != slowest)
    return slowest, seconds[slowest] / max(median, 1e-9)
