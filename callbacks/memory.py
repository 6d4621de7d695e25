"""How much memory a run takes, on which process most, and what to do when there is none left."""

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.memory_advice import BACKWARD, FORWARD, LOADING, PREDICTION, START, STEP, TEST, VALIDATION, advice
from callbacks.trends import Growth
from engine import host_memory
from engine.events import event
from engine.gather import gathered
from engine.out_of_memory import is_out_of_memory

log = logging.getLogger("lockstep")

_GIB = 1 << 30
_UNEVEN = 1.5
"""How many times the least process's memory one may have, and a GiB more, before it is said."""


class Memory(Callback):
    """Logs `train/memory_gib` every `log_every_n_steps` steps: the peak since the last time, of the process with most.

    On a GPU what tensors take at their most, on a CPU what the process has (loader workers not counted). Names a
    process that has much more than others: that one decides how large a micro-batch may be. Comparing is one small
    all-gather in steps that log alone. Warns once when the fullest process's goes on rising from log to log.

    When memory runs out it knows what was being computed: see `told`.
    """

    def __init__(self) -> None:
        self._phase, self._batch = START, None
        self._told_uneven = self._told_growth = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase, self._growth = LOADING, Growth()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._phase, self._batch = FORWARD, batch

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        self._phase = BACKWARD

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self._phase = STEP

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._phase, self._batch = LOADING, None
        if pl_module.is_log_step and not trainer.fit_loop.epoch_loop._should_accumulate():
            self._log(trainer, pl_module)

    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        self._phase, self._batch = VALIDATION, batch

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase, self._batch = LOADING, None

    def on_test_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        self._phase, self._batch = TEST, batch

    def on_predict_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        self._phase, self._batch = PREDICTION, batch

    def _log(self, trainer: Trainer, pl_module: LightningModule) -> None:
        device = trainer.strategy.root_device
        if device.type == "cuda":
            taken = torch.cuda.max_memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
        else:
            taken = host_memory.resident()
        everywhere = gathered(torch.tensor(taken, dtype=torch.int64, device=device)).tolist()
        pl_module.log("train/memory_gib", max(everywhere) / _GIB, on_step=True, on_epoch=False, batch_size=1)
        if not self._told_uneven and trainer.is_global_zero:
            self._told_uneven = self._tell_uneven(everywhere)
        if self._growth.seen_with(max(everywhere)) and trainer.is_global_zero and not self._told_growth:
            self._told_growth = True
            log.warning(
                "WARNING: memory grows: that of process %d has risen in each of the last %d logs, from %.2f to %.2f "
                "GiB; something is kept from step to step (losses with their graphs, a list that nobody empties). "
                "--config configs/overlays/profile.yaml draws its course above the operators",
                everywhere.index(max(everywhere)), self._growth.logs, self._growth.first / _GIB,
                max(everywhere) / _GIB,
                extra=event("memory_rising", process=everywhere.index(max(everywhere)), bytes=max(everywhere)),
            )  # fmt: skip

    @staticmethod
    def _tell_uneven(everywhere: list[int]) -> bool:
        most, least = max(everywhere), min(everywhere)
        if most <= _UNEVEN * least or most - least < _GIB:
            return False
        log.warning(
            "WARNING: memory is uneven: process %d has %.1f GiB, process %d has %.1f GiB; the micro batch that fits is "
            "that of the fullest (samples of very different lengths, or something that one process alone keeps)",
            everywhere.index(most), most / _GIB, everywhere.index(least), least / _GIB,
        )  # fmt: skip
        return True

    def told(self, trainer: Trainer, error: BaseException) -> str | None:
        """What to say about an error that is about memory; None about others."""
        if not is_out_of_memory(error):
            return None
        return advice(trainer, trainer.lightning_module, self._phase, self._batch)


def memory_advice(trainer: Trainer, error: BaseException) -> str | None:
    """`Memory.told` of the run's Memory; None in a run without one."""
    memories = [callback for callback in trainer.callbacks if isinstance(callback, Memory)]
    return memories[0].told(trainer, error) if memories else None
