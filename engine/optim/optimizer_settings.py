"""Holds the options of the optimizer and its learning rate, and builds both from them."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from engine.number_check import check_number, check_numbers
from engine.optim.lr_schedule import Scaling, Schedule, lr_lambda, scale_lr
from engine.optim.optimizers import OptimizerName, build_optimizer
from engine.optim.row_table import RowTable

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class OptimizerSettings:
    """Options of LockstepModule, which describes them and has their default values.

    Raises:
        ValueError: a number is out of its range.
    """

    learning_rate: float
    optimizer: OptimizerName
    betas: tuple[float, float]
    weight_decay: float
    schedule: Schedule
    warmup_steps: int
    final_fraction: float
    decay_fraction: float
    decay_rate: float
    decay_steps: int
    lr_scaling: Scaling
    base_batch_size: int | None
    offload: bool
    fused: bool

    def __post_init__(self) -> None:
        key = "model.init_args."
        check_number(f"{key}learning_rate", self.learning_rate, at_least=0)
        check_number(f"{key}weight_decay", self.weight_decay, at_least=0)
        check_numbers(f"{key}betas", {f"[{index}]": beta for index, beta in enumerate(self.betas)}, at_least=0, below=1)
        check_number(f"{key}warmup_steps", self.warmup_steps, at_least=0)
        fractions = {"final_fraction": self.final_fraction, "decay_fraction": self.decay_fraction}
        check_numbers(key, fractions, at_least=0, at_most=1)
        check_number(f"{key}decay_rate", self.decay_rate, above=0)
        sizes = {"decay_steps": self.decay_steps, "base_batch_size": self.base_batch_size}
        check_numbers(key, sizes, at_least=1)

    def build(
        self,
        groups: list[dict[str, Any]],
        *,
        batch_size: int,
        total_steps: Callable[[], int | None],
        embeddings: Collection[Tensor],
        hidden: Collection[Tensor],
        tables: Sequence[RowTable],
        max_steps: int,
    ) -> tuple[Optimizer, Callable[[int], float]]:
        """Return the optimizer with its peak rates, and the function from the finished steps to the factor on them.

        Args:
            groups: parameter groups; a group without `lr` gets `learning_rate`. All rates are scaled in place.
            batch_size: global batch size.
            total_steps: returns the optimizer steps of the training, None if unknown. Called only if the schedule has
                an end.
            embeddings: see `build_optimizer`.
            hidden: see `build_optimizer`.
            tables: tables that are trained by rows, which add groups of their own.
            max_steps: limit of the trainer, -1 for none; a schedule without an end compares its warm-up with it.
        """
        scale = scale_lr(1.0, self.lr_scaling, batch_size, self.base_batch_size)
        optimizer = build_optimizer(
            name=self.optimizer,
            groups=self._scaled_groups(groups, tables, scale, batch_size),
            learning_rate=self.learning_rate * scale,
            betas=self.betas,
            embeddings=embeddings,
            hidden=hidden,
            tables=tables,
            offload=self.offload,
            fused=self.fused,
        )
        # `total_steps` may make Lightning build the training loader, so only a schedule with an end calls it.
        steps = total_steps() if self.schedule in ("cosine", "stable_decay") else None
        self._warn_of_unreached_peak(max_steps if steps is None else steps)
        factor = lr_lambda(
            self.schedule,
            warmup_steps=self.warmup_steps,
            total_steps=steps,
            final_fraction=self.final_fraction,
            decay_fraction=self.decay_fraction,
            decay_rate=self.decay_rate,
            decay_steps=self.decay_steps,
        )
        return optimizer, factor

    def _scaled_groups(
        self, groups: Sequence[dict[str, Any]], tables: Sequence[RowTable], scale: float, batch_size: int
    ) -> list[dict[str, Any]]:
        """Return the groups and those of the tables, whose peak rates are multiplied by `scale` in place."""
        if self.lr_scaling != "none":
            log.info(
                "learning rate %g = %g for batch %s, scaled (%s) to batch %d",
                self.learning_rate * scale, self.learning_rate, self.base_batch_size, self.lr_scaling, batch_size,
            )  # fmt: skip
            for table in tables:
                if table.learning_rate is not None:
                    log.info("learning rate %g of %s, scaled alike", table.learning_rate * scale, table.name)
        scaled = [*groups, *(table.optimizer_group(self.weight_decay) for table in tables)]
        # A peak rate of a group's own is chosen for the base batch size, too.
        for group in scaled:
            group["lr"] = group.get("lr", self.learning_rate) * scale
        if not any(group["lr"] for group in scaled):
            log.warning("model.init_args.learning_rate is 0, so the training changes no weight; expected more than 0")
        return scaled

    def _warn_of_unreached_peak(self, steps: int) -> None:
        """Warn if the warm-up is not shorter than a training of `steps` steps, -1 for an unknown number."""
        if 0 < steps <= self.warmup_steps:
            log.warning(
                "model.init_args.warmup_steps is %d, and the training has %d steps: the learning rate never reaches "
                "its peak; lower it, or train for longer",
                self.warmup_steps, steps,
            )  # fmt: skip
