"""No weight ever becomes NaN or infinite: a step whose gradient is not finite is not taken, on any process."""

import logging
import math
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from callbacks.non_finite import describe
from callbacks.watchdog import longer_than_a_step
from engine.events import UNSAID, event
from engine.faults import AgreedFailure
from engine.rollback import roll_back

log = logging.getLogger("lockstep")


class FiniteGuard(Callback):
    """Decides before every optimizer step on the norm of the gradient, which is the same on every process.

    One NaN on one process reaches all of them with the gradients' all-reduce. Plain Lightning then trains on with NaN
    weights, saves them and ends with exit code 0. Here no collective is needed to agree: each process sees the same
    norm after the all-reduce and does the same.

    In fp16 a gradient that overflows although the mean loss is finite is the loss scale's affair: its scaler leaves
    the step out and halves the scale. It becomes this guard's when the scale has fallen below 1.

    A step left out counts as a step: the schedule, the order of the samples and checkpoints go on as if it had been
    taken. Statistics of batch norms are put back to what they were before it. Reading the norm waits for the device,
    once a step. Loss spikes that stay finite are not looked for.

    Args:
        policy: `stop` ends the run, with exit code 1 and the last checkpoint as it was; `skip` leaves the step out; `rollback` takes weights and optimizer state of the newest good checkpoint that this start has saved or goes on from, and goes on with the next batch, so that the batches since that checkpoint are passed over as well (as PaLM did, arXiv 2204.02311, section 5.1).
        max_skips: steps in a row that `skip` leaves out before it stops: more of them are no bad sample, the training has diverged.
        max_rollbacks: rollbacks in the whole run before it stops.
    """  # noqa: E501

    def __init__(
        self,
        policy: Literal["stop", "skip", "rollback"] = "stop",
        max_skips: int = 3,
        max_rollbacks: int = 3,
    ) -> None:
        for key, value in (("max_skips", max_skips), ("max_rollbacks", max_rollbacks)):
            if value < 1:
                raise ValueError(f"finite_guard.{key} must be at least 1, got {value}; policy stop allows none")
        self.policy, self.max_skips, self.max_rollbacks = policy, max_skips, max_rollbacks
        self.skipped = self.in_a_row = self.rollbacks = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.policy == "rollback" and isinstance(trainer.strategy, FSDPStrategy):
            raise ValueError("finite_guard.policy rollback loads whole weights and FSDP has shards: use skip or stop")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._statistics = _batch_statistics(pl_module) if self.policy == "skip" else []
        self._before = [statistic.clone() for statistic in self._statistics]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._statistics and batch_idx % trainer.accumulate_grad_batches == 0:
            torch._foreach_copy_(self._before, self._statistics)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        norm = pl_module.gradient_norm().item()
        if math.isfinite(norm):
            self.in_a_row = 0
        elif not self._scaler_takes_care(trainer, pl_module):
            self._act(trainer, pl_module, optimizer, describe(trainer, pl_module, norm))
        if self.skipped + self.rollbacks and pl_module.is_log_step:
            counts = {"train/skipped_steps": self.skipped, "train/rollbacks": self.rollbacks}
            pl_module.log_dict({name: float(count) for name, count in counts.items() if count}, batch_size=1)

    def _scaler_takes_care(self, trainer: Trainer, pl_module: LightningModule) -> bool:
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is None or scaler.get_scale() < 1 or not pl_module.mean_loss.isfinite():
            return False
        log.debug("step %d: the gradient overflows at a loss scale of %g", trainer.global_step + 1, scaler.get_scale())
        return True

    def _act(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, what: str) -> None:
        if self.policy != "skip":
            log.warning("%s", what, extra=UNSAID | event("gradients_not_finite", policy=self.policy))
        if self.policy == "stop":
            raise AgreedFailure(
                f"{what}\nNo weight was changed by it. To go on without such steps: --finite_guard.policy skip "
                "(or rollback) and --ckpt_path last"
            )
        if self.policy == "skip":
            self._skip(what)
        else:
            self._roll_back(trainer, pl_module, optimizer, what)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # the optimizer passes over it: no update, no decay, no change of its state

    def _skip(self, what: str) -> None:
        if self.in_a_row == self.max_skips:
            raise AgreedFailure(f"{what}\nNor was it in the {self.in_a_row} steps before (finite_guard.max_skips)")
        self.skipped, self.in_a_row = self.skipped + 1, self.in_a_row + 1
        for statistic, before in zip(self._statistics, self._before, strict=True):
            statistic.copy_(before)
        log.warning(
            "%s\nThis step is left out (%d so far)", what, self.skipped,
            extra=event("gradients_not_finite", policy=self.policy, left_out=self.skipped),
        )  # fmt: skip

    def _roll_back(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, what: str) -> None:
        if self.rollbacks == self.max_rollbacks:
            raise AgreedFailure(f"{what}\nThere were {self.rollbacks} rollbacks before (finite_guard.max_rollbacks)")
        with longer_than_a_step(trainer, "rollback"):  # a large checkpoint is read through first
            path, step = roll_back(trainer, pl_module, optimizer, what)
        self.rollbacks += 1
        log.warning(
            "%s\nGoing on with the weights of %s (after step %d) and the next batch (rollback %d of at most %d)",
            what, path, step, self.rollbacks, self.max_rollbacks,
            extra=event("rolled_back", path=str(path), to_step=step, rollbacks=self.rollbacks),
        )  # fmt: skip

    def state_dict(self) -> dict[str, int]:
        return {"skipped": self.skipped, "in_a_row": self.in_a_row, "rollbacks": self.rollbacks}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.skipped, self.in_a_row = state_dict["skipped"], state_dict["in_a_row"]
        self.rollbacks = state_dict["rollbacks"]


def _batch_statistics(module: nn.Module) -> list[Tensor]:
    """What a forward pass writes into a model: running means and variances of its batch and instance norms."""
    norms = [part for part in module.modules() if isinstance(part, _NormBase)]
    return [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
