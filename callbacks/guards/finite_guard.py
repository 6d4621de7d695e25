"""Keeps weights finite: all ranks act on a step whose gradient is NaN or infinite before the optimizer uses it."""

import logging
import math
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

from callbacks.guards.non_finite_report import describe_non_finite
from callbacks.health.watchdog import extended_timeout
from engine.checkpointing.checkpoint_schema import declare_callback
from engine.checkpointing.rollback import roll_back
from engine.checkpointing.schema import COUNT, fields
from engine.distributed.errors import CollectiveError
from engine.lightning_internals.tensors import copy_all
from engine.module import LockstepModule, as_lockstep_module
from engine.number_check import check_numbers
from engine.strategies.fsdp import has_sharded_weights
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE, event

log = logging.getLogger("lockstep")

declare_callback("FiniteGuard", fields({"skipped": COUNT, "in_a_row": COUNT, "rollbacks": COUNT}))

_NORMS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


class FiniteGuard(Callback):
    """Checks the norm of the gradient before every optimizer step.

    A NaN on one rank reaches all ranks with the gradients' all-reduce. Plain Lightning then trains on with NaN weights,
    saves them and ends with exit code 0. Here the ranks need no collective to agree: after the all-reduce each of them
    has the same norm, and does the same.

    In fp16 a gradient may overflow although the mean loss is finite. The loss scaler handles it: it skips the step and
    halves the scale. This guard acts if the scale has fallen below 1, or if only the norm overflows.

    A skipped step counts as a step: schedule, sample order and checkpoints continue as if it had been taken. Statistics
    of batch norms are restored. Reading the norm waits for the device once a step. Finite loss spikes are not detected.

    Args:
        policy: `stop` ends the run with exit code 1 and does not change the last checkpoint; `skip` skips the step;
            `rollback` loads weights and optimizer state of the newest good checkpoint that this start has saved or
            resumed from, and continues with the next batch, so that the batches since that checkpoint are skipped as
            well (as for PaLM, arXiv 2204.02311, section 5.1).
        max_skips: consecutive steps that `skip` skips before it stops: more of them mean that the training has
            diverged.
        max_rollbacks: rollbacks in the whole run before it stops.
    """

    def __init__(
        self,
        policy: Literal["stop", "skip", "rollback"] = "stop",
        max_skips: int = 3,
        max_rollbacks: int = 3,
    ) -> None:
        check_numbers("finite_guard.", {"max_skips": max_skips, "max_rollbacks": max_rollbacks}, at_least=1)
        self.policy, self.max_skips, self.max_rollbacks = policy, max_skips, max_rollbacks
        self.skipped = self.consecutive_skips = self.rollbacks = 0

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.policy == "rollback" and has_sharded_weights(trainer.strategy):
            raise ValueError("finite_guard.policy rollback does not support sharded weights (FSDP): use skip or stop")

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._norm_buffers = _norm_buffers(pl_module) if self.policy == "skip" else []
        self._buffers_before = [buffer.clone() for buffer in self._norm_buffers]

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # Copied before the first forward pass of the step, which changes the statistics.
        if self._norm_buffers and batch_idx % trainer.accumulate_grad_batches == 0:
            copy_all(self._buffers_before, self._norm_buffers)

    @override
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        module = as_lockstep_module(pl_module)
        norm = module.gradient_norm().item()  # equal on all ranks, so all take the same branch below
        if math.isfinite(norm):
            self.consecutive_skips = 0
        elif not self._is_left_to_scaler(trainer, module, optimizer):
            self._act(trainer, module, optimizer, describe_non_finite(trainer, module, norm))
        if self.skipped + self.rollbacks and module.is_log_step:
            counts = {"train/skipped_steps": self.skipped, "train/rollbacks": self.rollbacks}
            module.log_dict({name: float(count) for name, count in counts.items() if count}, batch_size=1)

    def _is_left_to_scaler(self, trainer: Trainer, pl_module: LockstepModule, optimizer: Optimizer) -> bool:
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is None or scaler.get_scale() < 1 or not pl_module.mean_loss.isfinite():
            return False
        # GradScaler has no public name for what it has found, so the gradients are read again.
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        if all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in parameters):
            return False  # only their squares overflow: the scaler would take the step
        log.debug("step %d: the gradient overflows at a loss scale of %g", trainer.global_step + 1, scaler.get_scale())
        return True

    def _act(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, description: str) -> None:
        if self.policy != "skip":
            log.warning("%s", description, extra=HIDDEN_ON_CONSOLE | event("gradients_not_finite", policy=self.policy))
        if self.policy == "stop":
            raise CollectiveError(
                f"{description}\nNo weight was changed. To continue without such steps: --finite_guard.policy skip "
                "(or rollback) and --ckpt_path last"
            )
        if self.policy == "skip":
            self._skip(description)
        else:
            self._roll_back(trainer, pl_module, optimizer, description)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # the optimizer ignores it: no update, no decay, no change of its state

    def _skip(self, description: str) -> None:
        if self.consecutive_skips == self.max_skips:
            raise CollectiveError(
                f"{description}\nThe {self.consecutive_skips} steps before it were skipped as well "
                "(finite_guard.max_skips)"
            )
        self.skipped, self.consecutive_skips = self.skipped + 1, self.consecutive_skips + 1
        for buffer, before in zip(self._norm_buffers, self._buffers_before, strict=True):
            # The forward passes of the skipped step have changed the statistics.
            buffer.copy_(before)
        log.warning(
            "%s\nThis step is skipped (%d so far)", description, self.skipped,
            extra=event("gradients_not_finite", policy=self.policy, skipped=self.skipped),
        )  # fmt: skip

    def _roll_back(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, description: str) -> None:
        if self.rollbacks == self.max_rollbacks:
            raise CollectiveError(
                f"{description}\nThe run has rolled back {self.rollbacks} times already (finite_guard.max_rollbacks)"
            )
        with extended_timeout(trainer, "rollback"):  # verification reads a large checkpoint completely
            path, step = roll_back(trainer, pl_module, optimizer, description)
        self.rollbacks += 1
        log.warning(
            "%s\nContinuing with the weights of %s (after step %d) and the next batch (rollback %d of at most %d)",
            description, path, step, self.rollbacks, self.max_rollbacks,
            extra=event("rolled_back", path=str(path), to_step=step, rollbacks=self.rollbacks),
        )  # fmt: skip

    @override
    def state_dict(self) -> dict[str, int]:
        return {"skipped": self.skipped, "in_a_row": self.consecutive_skips, "rollbacks": self.rollbacks}

    @override
    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.skipped, self.consecutive_skips = state_dict["skipped"], state_dict["in_a_row"]
        self.rollbacks = state_dict["rollbacks"]


def _norm_buffers(module: nn.Module) -> list[Tensor]:
    """Return what a forward pass writes into a model: running statistics of its batch and instance norms."""
    norms = [part for part in module.modules() if isinstance(part, _NORMS)]
    return [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
