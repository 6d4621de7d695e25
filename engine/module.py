"""Base class of every family's LightningModule: exact mean, stateless dropout, optimizer groups, schedule."""

import logging
import math
from abc import abstractmethod
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, cast

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.compatibility import check_model_match
from engine.checkpointing.frozen_weights import frozen_fingerprints, restore_frozen, strip_frozen
from engine.checkpointing.loop_progress import convert_progress
from engine.checkpointing.optimizer_state import check_optimizer_state
from engine.data.step_limits import limits_in_optimizer_steps
from engine.data.stream import StreamDataset
from engine.datamodule import LockstepDataModule
from engine.determinism.stateless_rng import global_seed, seed_torch
from engine.distributed.step_counters import StepCounters
from engine.distributed.unsharded_shape import unsharded_ndim, unsharded_numel
from engine.export.artifacts import ExportedModel
from engine.interface import DataT
from engine.lightning_internals import is_attached, is_last_micro_batch, is_log_step, unscales_gradients
from engine.optim.global_loss_mean import GlobalLossMean, LossSum
from engine.optim.grad_norm import grad_norm_per_group, gradient_norm
from engine.optim.lr_schedule import Scaling, Schedule
from engine.optim.optimizer_settings import OptimizerSettings
from engine.optim.optimizers import OptimizerName, check_state, check_strategy
from engine.optim.row_table import RowTable, is_trained
from engine.telemetry.sample_previews import PreviewReservoir, SamplePreview
from engine.trainer_settings import check_trainer_settings

log = logging.getLogger("lockstep")


class LockstepModule(LightningModule, Generic[DataT]):
    """LightningModule whose training does not depend on the world size.

    A family implements `training_loss` and the evaluation steps.

    Args:
        learning_rate: peak learning rate for `base_batch_size` samples in an optimizer step.
        optimizer: `adamw` (decoupled weight decay), `adam` (L2 term in the gradient), `adamw_8bit` (bitsandbytes' AdamW
            with a quarter of the state, except for embeddings and small tensors; not with FSDP) or `muon` (for hidden
            matrices, AdamW for the rest: fewer steps, half of the state of these matrices; not with FSDP).
        betas: decay rates of Adam's two running means.
        weight_decay: weight decay of matrices; none is applied to norms, biases and scalars.
        schedule: learning rate after the warm-up: `constant`, `cosine` (to `final_fraction` at the end of training),
            `stable_decay` (constant, then linearly to `final_fraction`) or `exponential` (times `decay_rate` every
            `decay_steps`).
        warmup_steps: optimizer steps of linear warm-up.
        final_fraction: final rate of `cosine` and `stable_decay`, as a fraction of the peak rate.
        decay_share: share of the training in which `stable_decay` decays.
        decay_rate: factor of the exponential schedule per `decay_steps` optimizer steps.
        decay_steps: see `decay_rate`.
        lr_scaling: scales the rate with the global batch size: `none`, `linear` or `sqrt` of batch_size /
            base_batch_size.
        base_batch_size: global batch size that `learning_rate` was chosen for; needed unless `lr_scaling` is `none`.
    """

    extra: ClassVar[str | None] = None
    """Extra of setup.cfg with the packages that the family needs; see engine.system.extras."""

    export_extra: ClassVar[str | None] = None
    """Further extra that its export needs."""

    terms_per_sample: int = 1
    """Approximate number of loss terms of a sample; only the order of magnitude matters (see GlobalLossMean)."""

    predicts_at_the_end = False
    """Whether `predict` writes its predictions itself after the last batch, instead of returning them by batch."""

    def __init__(
        self,
        learning_rate: float = 1e-3,
        optimizer: OptimizerName = "adamw",
        betas: tuple[float, float] = (0.9, 0.98),
        weight_decay: float = 0.0,
        schedule: Schedule = "constant",
        warmup_steps: int = 0,
        final_fraction: float = 0.0,
        decay_share: float = 0.3,
        decay_rate: float = 0.98,
        decay_steps: int = 1000,
        lr_scaling: Scaling = "none",
        base_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.optimizer_settings = OptimizerSettings(
            learning_rate, optimizer, betas, weight_decay, schedule, warmup_steps, final_fraction, decay_share,
            decay_rate, decay_steps, lr_scaling, base_batch_size,
        )  # fmt: skip
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.optimizer_name: OptimizerName = optimizer
        self.counters = StepCounters()
        self.row_tables: list[RowTable] = []  # a family adds those of its parameters that are trained by rows
        self.preview_reservoir: PreviewReservoir[Any] = PreviewReservoir()
        self._frozen_hashes: dict[str, int] | None = None
        self._before_normalization: list[Callable[[], None]] = []
        self._states_to_load: list[dict[str, Any]] = []  # of the optimizer, from the checkpoint

    _gradient_norm: Tensor | None
    """Gradient norm of the current step; None until it is computed."""

    @abstractmethod
    def training_loss(self, batch: Any) -> LossSum:
        """Return the sum of the micro-batch's loss terms and their number.

        Trial passes before training (`--threads auto`, `trainer.auto_micro_batch`) call it too. They restore buffers,
        metrics and random number generators; an implementation must keep no other state between calls.
        """

    def throughput_counts(self, batch: Any) -> dict[str, float]:
        """Return counts of a micro-batch by name, with the same names in every micro-batch of every rank.

        Throughput adds them up over all ranks and logs `train/NAME_per_second`. Two names have a meaning of their own:
        `positions` (padding included) gives `train/real_tokens`, the share of `tokens` among them; `flops` (of forward
        and backward pass) gives `train/tflops` and `train/mfu`.

        Called in every step, so values must be on the host: sizes, and counts from the data module.
        """
        return {}

    def sample_previews(self) -> list[Callable[[], SamplePreview]]:
        """Return previews of samples of the last validation and the model's output for them.

        At most `preview_reservoir.number`; `preview_reservoir` keeps what the validation computes of them.

        Called on every rank, so it may gather. The previews of rank 0 are displayed and must not depend on the number
        of ranks. Only rank 0 calls the returned functions, so these may read files but not gather. A preview whose
        function raises is skipped.
        """
        return []

    supports_grad_accumulation = True
    """Whether a global batch may be split into micro-batches; False if the loss compares all samples of a batch."""

    def memory_saving_options(self) -> list[tuple[str, str]]:
        """Return options not yet set that reduce memory, each as (option with value, its cost)."""
        return []

    @property
    def data(self) -> DataT:
        """Data module of the run, with the type that the module's interface declares.

        Raises:
            TypeError: it is not a LockstepDataModule.
        """
        datamodule = self.trainer.datamodule  # type: ignore[attr-defined]  # A connector sets it.
        if not isinstance(datamodule, LockstepDataModule):
            raise TypeError(f"data must be a LockstepDataModule, got {type(datamodule).__name__}")
        # The config pairs module and data. Checking each attribute of the Protocol would cost time in every step.
        return cast(DataT, datamodule)

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def setup(self, stage: str) -> None:
        if stage != "fit":
            return
        check_trainer_settings(self.trainer)
        check_strategy(self.optimizer_name, self.trainer.strategy)
        if self.trainer.overfit_batches:  # type: ignore[attr-defined]  # A connector sets it.
            # Lightning has applied its limits already; later it would replace the sampler by one of single samples.
            self.trainer.overfit_batches = 0  # type: ignore[attr-defined]  # A connector sets it.
            self.data.same_epoch = True
        plan = self.data.plan
        self.trainer.accumulate_grad_batches = plan.accumulation
        limits_in_optimizer_steps(self.trainer, self.data.steps_in_epoch, plan.accumulation)
        self._mean = GlobalLossMean(plan.micro_batch_size * self.terms_per_sample)
        log.info("%s", plan)

    @override
    def on_fit_start(self) -> None:
        sizes = [(unsharded_numel(parameter), is_trained(parameter)) for parameter in self.parameters()]
        total, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
        log.info("%s: %s parameters, %s of them trained", type(self).__name__, f"{total:,}", f"{trained:,}")
        if self._frozen_hashes is None and self._omits_frozen():
            self._frozen_hashes = frozen_fingerprints(self)
        for state in self._states_to_load:  # Lightning loads it after this hook
            check_optimizer_state(self._optimizer, state, str(self.trainer.ckpt_path))
        self._states_to_load = []

    @override
    def on_train_start(self) -> None:
        # The restored optimizer state has rate, betas and weight decay of the checkpoint; the config overrides them.
        optimizer, scheduler = self._optimizer, self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR), "configure_optimizers returns a LambdaLR"
        scheduler.base_lrs = [settings["lr"] for settings in self._configured]
        for group, settings, factor in zip(optimizer.param_groups, self._configured, scheduler.lr_lambdas, strict=True):
            group.update(settings, initial_lr=settings["lr"], lr=settings["lr"] * factor(scheduler.last_epoch))

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout's seed depends on the step alone, so a resumed run needs no generator state.
        micro = batch_idx % self.trainer.accumulate_grad_batches
        if micro == 0:
            for table in self.row_tables:
                table.forget()
        seed_torch(global_seed(), self.trainer.global_step, micro, self.trainer.global_rank)

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        # Undo Lightning's division by the accumulation: GlobalLossMean divides by the number of terms of the step.
        return self._mean.add(self.training_loss(batch)) * self.trainer.accumulate_grad_batches

    @override
    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients; after the last micro-batch of a step, turn them into those of the mean.

        Lightning calls the callbacks' `on_after_backward` before the module's, so this is the only hook in which the
        gradients can become the mean before a callback reads them. In fp16 they are still scaled.
        """
        super().backward(loss, *args, **kwargs)
        if is_last_micro_batch(self.trainer):
            while self._before_normalization:
                self._before_normalization.pop(0)()
            for table in self.row_tables:
                table.collect_gradients()
            trained = chain(self.parameters(), (table.touched for table in self.row_tables))
            self.mean_loss = self._mean.normalize_gradients(trained, self.counters)
            self._gradient_norm = None

    def call_before_normalization(self, function: Callable[[], None]) -> None:
        """Call `function` once, in the next step, when its gradients are complete and before they become the mean.

        For code that reduces the gradients over the ranks in the place of DDP.
        """
        self._before_normalization.append(function)

    @override
    def on_after_backward(self) -> None:
        if is_last_micro_batch(self.trainer) and self.is_log_step:
            rate = self._optimizer.param_groups[0]["lr"]
            self.log("train/loss", self.mean_loss, prog_bar=True, on_step=True, on_epoch=False, batch_size=1)
            self.log("train/learning_rate", rate, on_step=True, on_epoch=False, batch_size=1)

    @property
    def is_log_step(self) -> bool:
        """Whether metrics of this optimizer step are written; in other steps `self.log` only costs time."""
        return is_log_step(self.trainer)

    @property
    def losses_of_step(self) -> list[Tensor]:
        """Sum of the loss terms of each micro-batch of the step on this rank: scalars, for guards."""
        return self._mean.losses

    def gradient_norm(self) -> Tensor:
        """Return the L2 norm of the step's gradient before clipping: a scalar, equal on every rank, computed once.

        Call it in `on_before_optimizer_step` or later: before that hook, fp16 gradients are scaled.
        """
        if self._gradient_norm is None:
            # The optimizer's order, as in clipping, so that the sum of squares is the same to the bit.
            trained = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
            self._gradient_norm = gradient_norm(trained, self.trainer.strategy.model)
        return self._gradient_norm

    @override
    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self.is_log_step:
            norm, parts = self.gradient_norm(), grad_norm_per_group(optimizer.param_groups, self.trainer.strategy.model)
            self.log("train/gradient_norm", norm, on_step=True, on_epoch=False, batch_size=1)
            by_part = {f"train/gradient_norm/{part}": norm for part, norm in parts.items()}
            self.log_dict(by_part, on_step=True, on_epoch=False, batch_size=1)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, with the norm that is computed already."""
        by_norm = gradient_clip_algorithm in (None, GradClipAlgorithmType.NORM)
        # A fused optimizer unscales fp16 gradients itself, after clipping; Lightning's method raises then.
        if gradient_clip_val and by_norm and not unscales_gradients(optimizer):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            torch.nn.utils.clip_grads_with_norm_(parameters, gradient_clip_val, self.gradient_norm())
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    # -- optimizer ---------------------------------------------------------------------------------------------------

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        embeddings = {part.weight for part in self.modules() if isinstance(part, torch.nn.Embedding)}
        optimizer, factor = self.optimizer_settings.build(
            self.optimizer_groups(),
            self.data.plan.batch_size,
            self._total_steps,
            embeddings,
            self.hidden_matrices(),
            self.row_tables,
        )
        # Before LambdaLR, which sets the rates of the first step.
        self._configured = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        scheduler = LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    @property
    def _optimizer(self) -> Optimizer:
        """Optimizer of `configure_optimizers`, without Lightning's wrapper."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, Optimizer), "configure_optimizers returns one optimizer"
        return optimizer

    def _total_steps(self) -> int | None:
        if isinstance(self.data.train_set, StreamDataset):  # Lightning would start reading it for its length.
            return self.trainer.max_steps
        steps = self.trainer.estimated_stepping_batches
        return int(steps) if math.isfinite(steps) else None

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """Return parameter groups: matrices with weight decay; norms, biases and scalars without.

        A family may give a group its own peak rate, `lr`.
        """
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in trained if unsharded_ndim(parameter) >= 2]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay, "name": "matrices"},
            {"params": [p for p in trained if unsharded_ndim(p) < 2], "weight_decay": 0.0, "name": "vectors"},
        ]
        return [group for group in groups if group["params"]]

    def hidden_matrices(self) -> set[Tensor]:
        """Return the hidden linear weights, which `muon` optimizes.

        A family excludes layers whose outputs are scores of classes or tokens.
        """
        layers = (part for part in self.modules() if isinstance(part, torch.nn.Linear))
        # A layer with a quantized weight has no parameter `weight`.
        return {weight for part in layers for name, weight in part.named_parameters(recurse=False) if name == "weight"}

    # -- export ------------------------------------------------------------------------------------------------------

    def export(self, folder: Path, merge: bool) -> ExportedModel:
        """Write the trained weights for other programs, for `train.py export`. Optional for a family.

        Args:
            folder: exists and is empty.
            merge: see LockstepTrainer.export.

        Returns:
            Facts for the model card.
        """
        raise NotImplementedError

    # -- resume ------------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Omit frozen weights. A family that overrides this calls it."""
        if self._frozen_hashes is not None:
            strip_frozen(self, checkpoint, self._frozen_hashes)

    def _omits_frozen(self) -> bool:
        # Strategies that restore after setup shard the weights and load them without the module's hooks.
        strategy, storage = self.trainer.strategy, self.trainer.strategy.checkpoint_io
        trainable_only = isinstance(storage, VerifiedCheckpointIO) and storage.trainable_only
        return trainable_only and not strategy.restore_checkpoint_after_setup

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore frozen weights and convert counters. A family that overrides this calls it."""
        if is_attached(self) and self.trainer.state.fn == "fit" and self._omits_frozen():
            self._frozen_hashes = frozen_fingerprints(self)  # before weights are loaded
        restore_frozen(self, checkpoint)
        check_model_match(self, checkpoint)
        if not is_attached(self) or self.trainer.state.fn != "fit" or "loops" not in checkpoint:
            return
        states = checkpoint.get("optimizer_states", [])
        for state in states:
            check_state(self.optimizer_name, state)
        # Strategies that restore after setup do so after `on_fit_start`, which would never release the states.
        self._states_to_load = [] if self.trainer.strategy.restore_checkpoint_after_setup else states
        saved = checkpoint.get(type(self.data).__qualname__, {}).get("accumulation", 1)
        convert_progress(checkpoint, saved, self.data.plan.accumulation)
