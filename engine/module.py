"""The base of every LightningModule: exact mean, stateless dropout, optimizer groups, schedule."""

import logging
import math
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer

from engine.checkpoint_match import require_match
from engine.checkpoints import DurableCheckpointIO
from engine.datamodule import LockstepDataModule
from engine.exact_mean import ExactMean, LossSum
from engine.examples import Example
from engine.exported import Exported
from engine.frozen_weights import frozen_fingerprints, leave_out_frozen, put_back_frozen
from engine.gradient_norm import gradient_norm, norms_by_part
from engine.intervals import count_in_steps
from engine.optimizers import OptimizerName, make_optimizer, require_own_state, require_whole_tensors
from engine.randomness import global_seed, seed_torch
from engine.schedule import Scaling, Schedule, rate_factor, scaled_rate
from engine.shown_samples import ShownSamples
from engine.streaming import Stream
from engine.votes import Votes
from engine.whole_shape import dimensions, elements

log = logging.getLogger("lockstep")


class LockstepModule(LightningModule):
    """Trains the same on any number of processes. A family implements `training_loss` and the evaluation steps.

    Args:
        learning_rate: peak learning rate for `base_batch_size` samples in an optimizer step.
        optimizer: `adamw` (weight decay apart from the gradient), `adam` (L2 term in the gradient), `adamw_8bit` (bitsandbytes' AdamW with a quarter of the state; embeddings and small tensors keep theirs; not with FSDP) or `muon` (on matrices between a network's ends, AdamW on the rest: fewer steps, half of these matrices' state; not with FSDP).
        betas: decay rates of Adam's two running means.
        weight_decay: on matrices only; norms, biases and scalars are never decayed.
        schedule: what the rate does after the warm-up: `constant`, `cosine` (to `final_fraction` at the end of training), `stable_decay` (constant, then straight to `final_fraction`) or `exponential` (times `decay_rate` every `decay_steps`).
        warmup_steps: optimizer steps of linear warm-up.
        final_fraction: what `cosine` and `stable_decay` end at, as a fraction of the peak rate.
        decay_share: share of the training in which `stable_decay` goes down.
        decay_rate: factor of the exponential schedule per `decay_steps` optimizer steps.
        decay_steps: see `decay_rate`.
        lr_scaling: how the rate follows the global batch size: `none`, `linear` or `sqrt` of batch_size / base_batch_size.
        base_batch_size: global batch size that `learning_rate` was chosen for; needed unless `lr_scaling` is `none`.
    """  # noqa: E501

    terms_per_sample: int = 1
    """About how many loss terms a sample has; only its order of magnitude matters (see ExactMean)."""

    predicts_at_the_end = False
    """Whether `predict` writes what it found itself, when all has been read, and not batch by batch."""

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
        self.learning_rate, self.betas, self.weight_decay = learning_rate, betas, weight_decay
        self.optimizer_name: OptimizerName = optimizer
        self.schedule: Schedule = schedule
        self.warmup_steps, self.final_fraction = warmup_steps, final_fraction
        self.decay_share, self.decay_rate, self.decay_steps = decay_share, decay_rate, decay_steps
        self.lr_scaling: Scaling = lr_scaling
        self.base_batch_size = base_batch_size
        self.votes = Votes()
        self.shown_samples: ShownSamples[Any] = ShownSamples()
        self._frozen_as_built: dict[str, int] | None = None

    @abstractmethod
    def training_loss(self, batch: Any) -> LossSum:
        """The sum of the micro-batch's loss terms and their number."""

    def amounts(self, batch: Any) -> dict[str, float]:
        """How much a micro-batch holds, by name; the same names in every micro-batch of every process.

        Throughput adds them up over all processes and logs `train/NAME_per_second`. Two names are read apart:
        `positions`, with padding, makes `train/real_tokens`, the share of them that are `tokens`; `flops`, which the
        model takes forward and backward, make `train/tflops` and `train/mfu`.

        Asked in every step, so they are numbers of the host: sizes, and what the data side has counted.
        """
        return {}

    def examples(self) -> list[Callable[[], Example]]:
        """Some samples of the validation that has just been done, and what the model made of them: `shown_samples` at
        most, which keeps what the validation computes of them.

        Called on every process, so it may gather; shown is what the first one returns, the same whatever their number.
        There, and there alone, each is then made by a call, so this may read files but not gather. One that cannot be
        made is left out, and ends nothing.
        """
        return []

    splits_batches = True
    """Whether a global batch may be computed in micro-batches; where a loss compares all its samples it may not."""

    def memory_savers(self) -> list[tuple[str, str]]:
        """What else this model could be told to need less memory: (option with its value, what it costs), not yet set.
        """
        return []

    @property
    def data(self) -> LockstepDataModule:
        """The run's data module."""
        datamodule = self.trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(datamodule, LockstepDataModule):
            raise TypeError(f"data must be a LockstepDataModule, got {type(datamodule).__name__}")
        return datamodule

    # -- training ----------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        if stage != "fit":
            return
        if self.trainer.accumulate_grad_batches != 1:
            raise ValueError(
                f"trainer.accumulate_grad_batches is {self.trainer.accumulate_grad_batches}: accumulation follows from "
                "the batch size here; set data.init_args.micro_batch_size to the most that fits one device instead"
            )
        if self.trainer.reload_dataloaders_every_n_epochs:
            raise ValueError(
                "trainer.reload_dataloaders_every_n_epochs would begin the order of the samples anew; it is another "
                "one in every epoch as it is, so leave the key out"
            )
        require_whole_tensors(self.optimizer_name, self.trainer.strategy)
        if self.trainer.overfit_batches:
            # Its limits are set by now. What is left of it replaces samplers by one that deals out single samples.
            self.trainer.overfit_batches, self.data.same_epoch = 0, True
        plan = self.data.plan
        self.trainer.accumulate_grad_batches = plan.accumulation
        count_in_steps(self.trainer, self.data.steps_in_epoch, plan.accumulation)
        self._mean = ExactMean(plan.micro_batch_size * self.terms_per_sample)
        log.info("%s", plan)

    def on_fit_start(self) -> None:
        sizes = [(elements(parameter), parameter.requires_grad) for parameter in self.parameters()]
        total, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
        log.info("%s: %s parameters, %s of them trained", type(self).__name__, f"{total:,}", f"{trained:,}")
        if self._frozen_as_built is None and self._leaves_out_frozen():
            self._frozen_as_built = frozen_fingerprints(self)

    def on_train_start(self) -> None:
        # An optimizer's state brings rate, betas and weight decay along from the checkpoint; here the config counts.
        optimizer, scheduler = self.optimizers(use_pl_optimizer=False), self.lr_schedulers()
        scheduler.base_lrs = [settings["lr"] for settings in self._configured]
        for group, settings, factor in zip(optimizer.param_groups, self._configured, scheduler.lr_lambdas, strict=True):
            group.update(settings, initial_lr=settings["lr"], lr=settings["lr"] * factor(scheduler.last_epoch))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout's numbers are named by the step they are for, so a resumed run needs no generator state.
        micro = batch_idx % self.trainer.accumulate_grad_batches
        seed_torch(global_seed(), self.trainer.global_step, micro, self.trainer.global_rank)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        # Lightning divides by the accumulation; the exact mean does its own division, by the count of the step.
        return self._mean.add(self.training_loss(batch)) * self.trainer.accumulate_grad_batches

    def on_after_backward(self) -> None:
        # Before any callback sees the gradients: guards and logs get those of the mean.
        if not self.trainer.fit_loop.epoch_loop._should_accumulate():
            self.mean_loss = mean = self._mean.finish(self.parameters(), self.votes)
            self._gradient_norm = None
            if self.is_log_step:
                rate = self.optimizers(use_pl_optimizer=False).param_groups[0]["lr"]
                self.log("train/loss", mean, prog_bar=True, on_step=True, on_epoch=False, batch_size=1)
                self.log("train/learning_rate", rate, on_step=True, on_epoch=False, batch_size=1)

    @property
    def is_log_step(self) -> bool:
        """Whether what is logged in this optimizer step is written; in others `self.log` costs time for nothing."""
        return self.trainer._logger_connector.should_update_logs

    @property
    def losses_of_step(self) -> list[Tensor]:
        """Sums of the loss terms of each micro-batch that this process has had in the optimizer step, for guards."""
        return self._mean.losses

    def gradient_norm(self) -> Tensor:
        """L2 norm of the step's gradient, before clipping: a scalar, the same on every process, computed once a step.

        From `on_before_optimizer_step` on; before it the gradients are scaled in fp16.
        """
        if self._gradient_norm is None:
            # In the optimizer's order, as when clipping: the sum of squares is then the same to the bit.
            groups = self.optimizers(use_pl_optimizer=False).param_groups
            trained = [parameter for group in groups for parameter in group["params"]]
            self._gradient_norm = gradient_norm(trained, self.trainer.strategy.model)
        return self._gradient_norm

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self.is_log_step:
            norm, parts = self.gradient_norm(), norms_by_part(optimizer.param_groups, self.trainer.strategy.model)
            self.log("train/gradient_norm", norm, on_step=True, on_epoch=False, batch_size=1)
            by_part = {f"train/gradient_norm/{part}": norm for part, norm in parts.items()}
            self.log_dict(by_part, on_step=True, on_epoch=False, batch_size=1)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """As Lightning's, with the norm that is there already."""
        by_norm = gradient_clip_algorithm in (None, GradClipAlgorithmType.NORM)
        # A fused optimizer unscales its gradients itself, too late to clip them in fp16; Lightning says so.
        if gradient_clip_val and by_norm and not getattr(optimizer, "_step_supports_amp_scaling", False):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            torch.nn.utils.clip_grads_with_norm_(parameters, gradient_clip_val, self.gradient_norm())
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    # -- optimizer ---------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> OptimizerLRScheduler:
        scale = scaled_rate(1.0, self.lr_scaling, self.data.plan.batch_size, self.base_batch_size)
        if self.lr_scaling != "none":
            log.info(
                "learning rate %g = %g for batch %s, scaled (%s) to batch %d",
                self.learning_rate * scale, self.learning_rate, self.base_batch_size,
                self.lr_scaling, self.data.plan.batch_size,
            )  # fmt: skip
        groups = self.optimizer_groups()
        for group in groups:
            group["lr"] = group.get("lr", self.learning_rate) * scale
        embeddings = {part.weight for part in self.modules() if isinstance(part, torch.nn.Embedding)}
        rate = self.learning_rate * scale
        optimizer = make_optimizer(
            self.optimizer_name, groups, rate, self.betas, embeddings, self.hidden_matrices()
        )
        factor = rate_factor(
            self.schedule,
            warmup_steps=self.warmup_steps,
            total_steps=self._total_steps() if self.schedule in ("cosine", "stable_decay") else None,
            final_fraction=self.final_fraction,
            decay_share=self.decay_share,
            decay_rate=self.decay_rate,
            decay_steps=self.decay_steps,
        )
        self._configured = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _total_steps(self) -> int | None:
        if isinstance(self.data.train_set, Stream):  # of unknown length; Lightning would begin to read it to find out
            return self.trainer.max_steps
        steps = self.trainer.estimated_stepping_batches
        return int(steps) if math.isfinite(steps) else None

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """Matrices with weight decay; norms, biases and scalars without. A group may have its own peak rate, `lr`."""
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in trained if dimensions(parameter) >= 2]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay, "name": "matrices"},
            {"params": [p for p in trained if dimensions(p) < 2], "weight_decay": 0.0, "name": "vectors"},
        ]
        return [group for group in groups if group["params"]]

    def hidden_matrices(self) -> set[torch.nn.Parameter]:
        """Matrices between the network's ends, which `muon` turns: linear layers. Those whose outputs are scores of
        classes or tokens a family leaves out."""
        return {part.weight for part in self.modules() if isinstance(part, torch.nn.Linear)}

    # -- other forms -------------------------------------------------------------------------------------------------

    def export(self, folder: Path, merge: bool) -> Exported:
        """Writes the trained weights for other programs, for `train.py export`; only some families can.

        Args:
            folder: is there, and empty.
            merge: see LockstepTrainer.export.

        Returns:
            What the model card says of it.
        """
        raise NotImplementedError

    # -- resume ------------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leaves out what is frozen. A family that overrides this calls it."""
        if self._frozen_as_built is not None:
            leave_out_frozen(self, checkpoint, self._frozen_as_built)

    def _leaves_out_frozen(self) -> bool:
        # Strategies that restore after setup shard the weights and load them without asking the module.
        strategy = self.trainer.strategy
        durable = isinstance(strategy.checkpoint_io, DurableCheckpointIO)
        return durable and strategy.checkpoint_io.trainable_only and not strategy.restore_checkpoint_after_setup

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Puts frozen weights back. A family that overrides this calls it.

        Lightning counts micro-batches; on another accumulation than the checkpoint's the counters are converted.
        """
        if self._trainer is not None and self.trainer.state.fn == "fit" and self._leaves_out_frozen():
            self._frozen_as_built = frozen_fingerprints(self)  # before they are loaded
        put_back_frozen(self, checkpoint)
        require_match(self, checkpoint)
        if self._trainer is None or self.trainer.state.fn != "fit" or "loops" not in checkpoint:
            return
        for state in checkpoint.get("optimizer_states", []):
            require_own_state(self.optimizer_name, state)
        saved = checkpoint.get(type(self.data).__qualname__, {}).get("accumulation", 1)
        accumulation = self.data.plan.accumulation
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counters in (progress["total"], progress["current"]):
            behind = counters["processed"] - counters["completed"]  # a save inside on_train_batch_end is one behind
            done = counters["processed"] // saved * accumulation
            for key in ("ready", "started", "processed", "completed"):
                counters[key] = done - (behind if key == "completed" else 0)
