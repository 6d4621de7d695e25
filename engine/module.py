"""Defines the base class of every family's LightningModule: exact mean, stateless dropout, checkpoints."""

import logging
import math
from collections.abc import Callable
from inspect import signature
from typing import Any, Generic, Literal, cast

from lightning.pytorch import LightningModule
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from typing_extensions import override

from engine.checkpointing.compatibility import check_model_match
from engine.checkpointing.frozen_weights import FrozenWeights, restore_frozen
from engine.checkpointing.loop_progress import check_epochs, convert_progress
from engine.checkpointing.optimizer_state import check_optimizer_state
from engine.data.step_limits import convert_limits_to_micro_batches
from engine.data.stream import StreamDataset
from engine.datamodule import LockstepDataModule
from engine.determinism.stateless_rng import global_seed, seed_torch
from engine.distributed.data_parallel_rank import data_parallel_rank
from engine.distributed.logical_shape import logical_numel
from engine.distributed.step_counters import StepCounters
from engine.family_hooks import FamilyHooks
from engine.interface import DataT
from engine.lightning_internals.training_loop import is_attached, is_last_micro_batch
from engine.optim.global_loss_mean import GlobalLossMean
from engine.optim.lr_schedule import Scaling, Schedule
from engine.optim.optimizer_checks import check_state, check_strategy
from engine.optim.optimizer_settings import OptimizerSettings
from engine.optim.optimizers import OptimizerName
from engine.optim.parameter_groups import parameters_of
from engine.optim.row_table import is_trained
from engine.optimizer_module import OptimizerModule
from engine.run_trainer import as_run_trainer
from engine.telemetry.sample_previews import PreviewReservoir
from engine.trainer_settings import check_trainer_settings

log = logging.getLogger("lockstep")


class LockstepModule(FamilyHooks, OptimizerModule, Generic[DataT]):
    """LightningModule whose training does not depend on the world size.

    A family implements `training_loss` of FamilyHooks and the evaluation steps.

    Args:
        learning_rate: peak learning rate for `base_batch_size` samples in an optimizer step.
        optimizer: `adamw` (decoupled weight decay), `adam` (L2 term in the gradient), `adamw_8bit` (bitsandbytes' AdamW
            with a quarter of the state, except for embeddings and small tensors), `paged_adamw_8bit` (the same; where
            a GPU's memory is full, CUDA moves the state to CPU memory; not with FSDP) or `muon` (for hidden matrices,
            AdamW for the rest: fewer steps, half of the state of these matrices). The 8-bit optimizers do not work with
            tensor parallelism.
        betas: decay rates of Adam's two running means.
        weight_decay: weight decay of matrices; none is applied to norms, biases and scalars.
        schedule: learning rate after the warm-up: `constant`, `cosine` (to `final_fraction` at the end of training),
            `stable_decay` (constant, then linearly to `final_fraction`) or `exponential` (times `decay_rate` every
            `decay_steps`).
        warmup_steps: optimizer steps of linear warm-up.
        final_fraction: final rate of `cosine` and `stable_decay`, as a fraction of the peak rate.
        decay_fraction: fraction of the training in which `stable_decay` decays.
        decay_rate: factor of the exponential schedule per `decay_steps` optimizer steps.
        decay_steps: see `decay_rate`.
        lr_scaling: scales the rate with the global batch size: `none`, `linear` or `sqrt` of batch_size /
            base_batch_size.
        base_batch_size: global batch size that `learning_rate` was chosen for; needed unless `lr_scaling` is `none`.
        optimizer_offload: keep the optimizer's state in CPU memory and compute its step there. The GPU needs no memory
            for the state, and steps take longer. Not with FSDP, which has `cpu_offload`.
        optimizer_fused: update all parameters in one kernel, for `adamw` and `adam`: faster, with results that differ
            in the last bits. Not with FSDP, tensor parallelism, precision 16-mixed or tables that are trained by rows,
            and not for a resumed run that began without it.
    """

    fast_attributes = OptimizerModule.fast_attributes | {"mean_loss"}

    mean_loss: Tensor
    """Mean loss term of the last step over all ranks: a scalar, equal on every rank. Set by `backward`."""

    def __init__(
        self,
        learning_rate: float = 1e-3,
        optimizer: OptimizerName = "adamw",
        betas: tuple[float, float] = (0.9, 0.98),
        weight_decay: float = 0.0,
        schedule: Schedule = "constant",
        warmup_steps: int = 0,
        final_fraction: float = 0.0,
        decay_fraction: float = 0.3,
        decay_rate: float = 0.98,
        decay_steps: int = 1000,
        lr_scaling: Scaling = "none",
        base_batch_size: int | None = None,
        optimizer_offload: bool = False,
        optimizer_fused: bool = False,
    ) -> None:
        settings = OptimizerSettings(
            learning_rate=learning_rate,
            optimizer=optimizer,
            betas=betas,
            weight_decay=weight_decay,
            schedule=schedule,
            warmup_steps=warmup_steps,
            final_fraction=final_fraction,
            decay_fraction=decay_fraction,
            decay_rate=decay_rate,
            decay_steps=decay_steps,
            lr_scaling=lr_scaling,
            base_batch_size=base_batch_size,
            offload=optimizer_offload,
            fused=optimizer_fused,
        )
        super().__init__(settings)
        self.counters = StepCounters()
        self.preview_reservoir: PreviewReservoir[Any] = PreviewReservoir()
        self.frozen_weights = FrozenWeights()
        self._before_normalization: list[Callable[[], None]] = []
        self._states_to_load: list[dict[str, Any]] = []  # of the optimizer, from the checkpoint

    @property
    def data(self) -> DataT:
        """Data module of the run, with the type that the module's interface declares.

        Raises:
            TypeError: it is not a LockstepDataModule.
        """
        datamodule = as_run_trainer(self.trainer).datamodule
        if not isinstance(datamodule, LockstepDataModule):
            raise TypeError(f"data must be a LockstepDataModule, got {type(datamodule).__name__}")
        # The config pairs module and data. Checking each attribute of the Protocol would cost time in every step.
        return cast(DataT, datamodule)

    @property
    @override
    def global_batch_size(self) -> int:
        return self.data.plan.batch_size

    @override
    def total_steps(self) -> int | None:
        if isinstance(self.data.train_set, StreamDataset):  # Lightning would start reading it for its length.
            return self.trainer.max_steps
        steps = self.trainer.estimated_stepping_batches
        return int(steps) if math.isfinite(steps) else None

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def setup(self, stage: str) -> None:
        if stage != "fit":
            return
        check_trainer_settings(self.trainer)
        settings = self.optimizer_settings
        check_strategy(settings.optimizer, self.trainer.strategy, settings.offload, settings.fused)
        trainer = as_run_trainer(self.trainer)
        if trainer.overfit_batches:
            # Lightning has applied its limits already; later it would replace the sampler, which draws whole batches.
            trainer.overfit_batches = 0
            self.data.same_epoch = True
        plan = self.data.plan
        # The accumulation follows from the batch plan and the world size, and is not a setting of the user.
        self.trainer.accumulate_grad_batches = plan.accumulation
        convert_limits_to_micro_batches(self.trainer, self.data.steps_in_epoch, plan.accumulation)
        self._mean = GlobalLossMean(plan.micro_batch_size * self.terms_per_sample)
        log.info("%s", plan)

    @override
    def on_fit_start(self) -> None:
        sizes = [(logical_numel(parameter), is_trained(parameter)) for parameter in self.parameters()]
        total, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
        # FSDP derives another class from the module's.
        name = next(kind.__name__ for kind in type(self).__mro__ if not issubclass(kind, FSDPModule))
        log.info("%s: %s parameters, %s of them trained", name, f"{total:,}", f"{trained:,}")
        # A resumed run has recorded them in `on_load_checkpoint`, before the checkpoint replaced the weights.
        if not self.frozen_weights.recorded:
            self.frozen_weights.record(self)
        for state in self._states_to_load:  # Lightning loads it after this hook
            check_optimizer_state(self._optimizer, state, str(self.trainer.ckpt_path))
        self._states_to_load = []

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout's seed is a hash of (seed, step, micro-batch, data-parallel rank), so a resumed run needs no state.
        micro = batch_idx % self.trainer.accumulate_grad_batches
        if micro == 0:
            for table in self.row_tables:
                table.forget()
        seed_torch(global_seed(), self.trainer.global_step, micro, data_parallel_rank(self.trainer).rank)

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        # Undo Lightning's division by the accumulation: GlobalLossMean divides by the number of terms of the step.
        return self._mean.add(self.training_loss(batch)) * self.trainer.accumulate_grad_batches

    # Lightning asks for the signature in every step, and `inspect` would derive it each time.
    training_step.__signature__ = signature(training_step)  # type: ignore[attr-defined]  # PEP 362, for any callable.

    @override
    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of the sum; after the last micro-batch of a step, turn them into gradients of the mean.

        Lightning calls the callbacks' `on_after_backward` before the module's, so this is the only hook in which the
        gradients can become the mean before a callback reads them. In fp16 they are still scaled.
        """
        super().backward(loss, *args, **kwargs)
        if is_last_micro_batch(self.trainer):
            # First reduce the gradients that DDP has not reduced, so that the factor below applies to all of them.
            while self._before_normalization:
                self._before_normalization.pop(0)()
            for table in self.row_tables:
                table.collect_gradients()
            self.mean_loss = self._mean.normalize_gradients(parameters_of(self._optimizer), self.counters)
            self._gradient_norm = None  # the cached norm is of the previous step

    def call_before_normalization(self, function: Callable[[], None]) -> None:
        """Call `function` once, in the next step, when its gradients are complete and before they become the mean.

        For code that reduces the gradients over the ranks instead of DDP.
        """
        self._before_normalization.append(function)

    @override
    def on_after_backward(self) -> None:
        if self.is_log_step and is_last_micro_batch(self.trainer):
            rate = self._optimizer.param_groups[0]["lr"]
            self.log("train/loss", self.mean_loss, prog_bar=True, on_step=True, on_epoch=False, batch_size=1)
            self.log("train/learning_rate", rate, on_step=True, on_epoch=False, batch_size=1)

    @property
    def losses_of_step(self) -> list[Tensor]:
        """Sum of the loss terms of each micro-batch of the step on this rank: scalars, for guards."""
        return self._mean.losses

    @property
    def evaluation_stage(self) -> Literal["val", "test"]:
        """Prefix of the metrics of an evaluation: `test` of the command `test`, else `val`."""
        return "test" if self.trainer.state.fn == "test" else "val"

    # -- resume ------------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Omit frozen weights. A family that overrides this calls it."""
        self.frozen_weights.strip(self, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore frozen weights and convert counters. A family that overrides this calls it."""
        if is_attached(self) and self.trainer.state.fn == "fit":
            self.frozen_weights.record(self)  # before weights are loaded
        restore_frozen(self, checkpoint)
        check_model_match(self, checkpoint)
        if not is_attached(self) or self.trainer.state.fn != "fit" or "loops" not in checkpoint:
            return
        check_epochs(checkpoint, self.trainer.max_epochs, str(self.trainer.ckpt_path))
        states = checkpoint.get("optimizer_states", [])
        for state in states:
            check_state(self.optimizer_name, state, self.optimizer_settings.fused)
        # Strategies that restore after setup do so after `on_fit_start`, which would never release the states.
        self._states_to_load = [] if self.trainer.strategy.restore_checkpoint_after_setup else states
        saved = checkpoint.get(type(self.data).__qualname__, {}).get("accumulation", 1)
        convert_progress(checkpoint, saved, self.data.plan.accumulation)


def as_lockstep_module(pl_module: LightningModule) -> LockstepModule:
    """Return the module of a callback's hook with its type. Nothing is checked: `train.py` accepts no other module."""
    return cast(LockstepModule, pl_module)
