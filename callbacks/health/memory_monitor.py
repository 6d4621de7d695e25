"""Monitors the memory of a run: its course, the rank that uses most, and advice when it runs out."""

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.health.oom_advice import (
    BACKWARD,
    FORWARD,
    LOADING,
    PREDICTION,
    START,
    STEP,
    TEST,
    VALIDATION,
    oom_message,
)
from engine.distributed.collectives import all_gather_tensor
from engine.lightning_internals.training_loop import is_last_micro_batch
from engine.module import as_lockstep_module
from engine.run_trainer import as_run_trainer
from engine.system import host_memory
from engine.system.byte_size import GIB
from engine.system.oom import is_oom_error
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

_UNEVEN = 1.5
"""Ratio of the largest to the smallest memory of a rank above which a warning is logged, if they differ by a GiB."""

_WARM_UP_LOGS = 3
"""First logs of a start, which are not representative: allocators grow."""

_RISING_LOGS, _GROWTH = 20, 1.2
"""Consecutive increases, and ratio to the memory before them, from which growth is reported."""


class GrowthDetector:
    """Detects that memory rises from log to log, many times in a row, and by a fifth.

    Attributes:
        rises: number of consecutive rises until the last log.
        start_bytes: memory before the first of these rises.
    """

    def __init__(self) -> None:
        self._num_logs, self.rises, self.start_bytes, self._last = 0, 0, 0, 0

    def update(self, size: int) -> bool:
        """Add a log, and return whether memory has grown.

        Args:
            size: bytes of the rank with most.
        """
        self._num_logs += 1
        # The rise begins again at each log that does not exceed the last.
        if self._num_logs <= _WARM_UP_LOGS or size <= self._last or not self.start_bytes:
            self.rises, self.start_bytes = 0, size
        else:
            self.rises += 1
        self._last = size
        return self.rises >= _RISING_LOGS and size > _GROWTH * self.start_bytes


class MemoryMonitor(Callback):
    """Logs `train/memory_gib` every `log_every_n_steps` steps: the peak since the last log, of the rank with most.

    On a GPU it is the peak of allocated tensors, on a CPU the resident memory (without loader workers). Warns about a
    rank that uses much more than others, since that rank limits the micro-batch size. The comparison is one small
    all-gather, only in steps that are logged. Warns once if the memory rises from log to log.

    The callback tracks what is computed, for `advice` when memory runs out.
    """

    def __init__(self) -> None:
        self._phase, self._batch = START, None
        self._has_warned_uneven = self._has_warned_growth = False

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase, self._growth = LOADING, GrowthDetector()

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._phase, self._batch = FORWARD, batch

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        self._phase = BACKWARD

    @override
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        self._phase = STEP

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        self._phase, self._batch = LOADING, None
        if as_lockstep_module(pl_module).is_log_step and is_last_micro_batch(trainer):
            self._log(trainer, pl_module)

    @override
    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        self._phase, self._batch = VALIDATION, batch

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase, self._batch = LOADING, None

    @override
    def on_test_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        self._phase, self._batch = TEST, batch

    @override
    def on_predict_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        self._phase, self._batch = PREDICTION, batch

    def _log(self, trainer: Trainer, pl_module: LightningModule) -> None:
        device = trainer.strategy.root_device
        if device.type == "cuda":
            # Allocated, not reserved: the reserve of the caching allocator grows to whatever the device has.
            used = torch.cuda.max_memory_allocated(device)
            # The peak of the next log begins here.
            torch.cuda.reset_peak_memory_stats(device)
        else:
            used = host_memory.resident_memory()
        # [world size], bytes
        memory_by_rank = all_gather_tensor(torch.tensor(used, dtype=torch.int64, device=device)).tolist()
        pl_module.log("train/memory_gib", max(memory_by_rank) / GIB, on_step=True, on_epoch=False, batch_size=1)
        if not self._has_warned_uneven and trainer.is_global_zero:
            self._has_warned_uneven = self._warn_uneven(memory_by_rank)
        # Every rank updates the detector; only rank 0 logs.
        if self._growth.update(max(memory_by_rank)) and trainer.is_global_zero and not self._has_warned_growth:
            self._has_warned_growth = True
            log.warning(
                "memory grows: that of rank %d has risen in each of the last %d logs, from %.2f to %.2f GiB; "
                "something is kept from step to step (losses with their graphs, a growing list). --config "
                "configs/overlays/profile.yaml records memory and operators over time",
                memory_by_rank.index(max(memory_by_rank)), self._growth.rises,
                self._growth.start_bytes / GIB, max(memory_by_rank) / GIB,
                extra=event("memory_rising", rank=memory_by_rank.index(max(memory_by_rank)), bytes=max(memory_by_rank)),
            )  # fmt: skip

    @staticmethod
    def _warn_uneven(memory_by_rank: list[int]) -> bool:
        largest, smallest = max(memory_by_rank), min(memory_by_rank)
        if largest <= _UNEVEN * smallest or largest - smallest < GIB:
            return False
        log.warning(
            "memory is uneven: rank %d has %.1f GiB, rank %d has %.1f GiB. The fullest rank limits the "
            "micro-batch size (samples differ much in length, or one rank keeps something)",
            memory_by_rank.index(largest), largest / GIB, memory_by_rank.index(smallest), smallest / GIB,
        )  # fmt: skip
        return True

    def advice(self, trainer: Trainer, error: BaseException) -> str | None:
        """Return the message for an out-of-memory error, None for any other error."""
        if not is_oom_error(error):
            return None
        return oom_message(trainer, as_lockstep_module(trainer.lightning_module), self._phase, self._batch)


def memory_advice(trainer: Trainer, error: BaseException) -> str | None:
    """Return `MemoryMonitor.advice` of the run's MemoryMonitor, or None if the run has none."""
    monitors = [callback for callback in as_run_trainer(trainer).callbacks if isinstance(callback, MemoryMonitor)]
    return monitors[0].advice(trainer, error) if monitors else None
