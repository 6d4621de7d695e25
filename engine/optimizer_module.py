"""Defines a LightningModule with the optimizer, schedule and clipping that OptimizerSettings describe."""

from abc import abstractmethod
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from engine.distributed.device_numbers import is_host
from engine.lightning_internals.tensors import unscales_gradients
from engine.lightning_internals.training_loop import FastAttributes, is_log_step
from engine.optim.grad_norm import clip, clip_values, grad_norm_per_group, gradient_norm
from engine.optim.lr_schedule import StepSchedule
from engine.optim.optimizer_settings import OptimizerSettings
from engine.optim.optimizers import OptimizerName
from engine.optim.parameter_groups import (
    decay_groups,
    embedding_weights,
    group_settings,
    override_restored_groups,
    parameters_of,
)
from engine.optim.row_table import RowTable


class OptimizerModule(FastAttributes, LightningModule):
    """LightningModule that builds its optimizer, logs and clips its gradients, and resumes with the config's rates.

    Args:
        settings: options of the optimizer and its schedule.
    """

    fast_attributes = FastAttributes.fast_attributes | {"_gradient_norm"}

    _gradient_norm: Tensor | None
    """Gradient norm of the current step; None until it is computed."""

    def __init__(self, settings: OptimizerSettings) -> None:
        super().__init__()
        self.optimizer_settings = settings
        self.learning_rate, self.weight_decay = settings.learning_rate, settings.weight_decay
        self.optimizer_name: OptimizerName = settings.optimizer
        self.row_tables: list[RowTable] = []  # a family adds its tables that are trained by rows

    @property
    @abstractmethod
    def global_batch_size(self) -> int:
        """Samples of an optimizer step over all ranks."""

    @abstractmethod
    def total_steps(self) -> int | None:
        """Return the optimizer steps of the training; None if their number is unknown."""

    # -- optimizer ---------------------------------------------------------------------------------------------------

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer, factor = self.optimizer_settings.build(
            self.optimizer_groups(),
            batch_size=self.global_batch_size,
            total_steps=self.total_steps,
            embeddings=embedding_weights(self),
            hidden=self.hidden_matrices(),
            tables=self.row_tables,
            max_steps=self.trainer.max_steps,
        )
        self._configured = group_settings(optimizer)  # before LambdaLR sets the rates of the first step
        # One step of the schedule is one optimizer step. By default Lightning steps a schedule once an epoch.
        scheduler = StepSchedule(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    @property
    def _optimizer(self) -> Optimizer:
        """Optimizer of `configure_optimizers`, without Lightning's wrapper."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, Optimizer), "configure_optimizers returns one optimizer"
        return optimizer

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """Return parameter groups: matrices with weight decay; norms, biases and scalars without.

        A family may give a group its own peak rate, `lr`.
        """
        return decay_groups(self, self.weight_decay)

    def hidden_matrices(self) -> set[Tensor]:
        """Return the hidden linear weights, which `muon` optimizes.

        A family excludes layers whose outputs are scores of classes or tokens.
        """
        layers = (part for part in self.modules() if isinstance(part, torch.nn.Linear))
        # A layer with a quantized weight has no parameter `weight`.
        return {weight for part in layers for name, weight in part.named_parameters(recurse=False) if name == "weight"}

    @override
    def on_train_start(self) -> None:
        optimizer, scheduler = self._optimizer, self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR), "configure_optimizers returns a LambdaLR"
        # A checkpoint restores the rates of the run that wrote it. The config of this run wins.
        override_restored_groups(optimizer, scheduler, self._configured)

    # -- gradients ---------------------------------------------------------------------------------------------------

    @property
    def is_log_step(self) -> bool:
        """Whether metrics of this optimizer step are written; in other steps `self.log` only costs time."""
        return is_log_step(self.trainer)

    def gradient_norm(self) -> Tensor:
        """Return the L2 norm of the step's gradient before clipping: a scalar, equal on every rank, computed once.

        Call it in `on_before_optimizer_step` or later: before that hook, fp16 gradients are scaled.
        """
        if self._gradient_norm is None:
            # The optimizer's order, as in clipping, so that the sum of squares is the same to the bit.
            self._gradient_norm = gradient_norm(parameters_of(self._optimizer))
        return self._gradient_norm

    @override
    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self.is_log_step:
            norm, parts = self.gradient_norm(), grad_norm_per_group(optimizer.param_groups)
            self.log("train/gradient_norm", norm, on_step=True, on_epoch=False, batch_size=1)
            # Norms are logged before clipping. The squares of the parts' norms add up to the square of the whole.
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
        if not gradient_clip_val or unscales_gradients(optimizer):
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
        elif by_norm:
            norm = self.gradient_norm()
            # torch multiplies by 1, too, because reading the norm waits for a GPU. A CPU does not. The margin covers
            # the rounding of torch's factor.
            if not is_host(norm.device) or not norm.item() + 1e-6 < 0.999 * gradient_clip_val:
                clip(parameters_of(optimizer), gradient_clip_val, norm)
        else:
            clip_values(parameters_of(optimizer), gradient_clip_val)
