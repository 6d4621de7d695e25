"""Computes learning rate schedules, in optimizer steps, and scales the learning rate with the batch size."""

import math
from collections.abc import Callable
from typing import Any, Literal

from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from engine.number_check import check_number

Schedule = Literal["constant", "cosine", "stable_decay", "exponential"]
Scaling = Literal["none", "linear", "sqrt"]


class StepSchedule(LambdaLR):
    """LambdaLR that names a state of another scheduler, which torch's would read with a KeyError."""

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "lr_lambdas" not in state_dict:
            raise ValueError(
                "the checkpoint holds another scheduler's state: lr_schedulers[0].lr_lambdas not found. --ckpt_path "
                "FILE uses another checkpoint; another --run_name starts from scratch"
            )
        super().load_state_dict(state_dict)


def lr_lambda(
    schedule: Schedule,
    *,
    warmup_steps: int = 0,
    total_steps: int | None = None,
    final_fraction: float,
    decay_fraction: float,
    decay_rate: float,
    decay_steps: int,
) -> Callable[[int], float]:
    """Return a function from the number of finished steps to the factor on the learning rate.

    A linear warm-up (its first factor is `1 / warmup_steps`), then

    - `constant`: 1;
    - `cosine`: half a cosine from 1 down to `final_fraction` at `total_steps`;
    - `stable_decay`: 1, and in the last `decay_fraction` of the steps linearly down to `final_fraction` (Hu et al.,
      "MiniCPM", 2024, arXiv 2404.06395);
    - `exponential`: `decay_rate ** (steps after the warm-up / decay_steps)`.

    Args:
        schedule: name of the curve, one of the list above.
        warmup_steps: optimizer steps of the warm-up; 0 for none.
        total_steps: optimizer steps of the whole training, warm-up included; None if unknown.
        final_fraction: last factor of `cosine` and `stable_decay`.
        decay_fraction: fraction of `total_steps` in which `stable_decay` decays.
        decay_rate: factor of `exponential` for `decay_steps` steps.
        decay_steps: see `decay_rate`.

    Raises:
        ValueError: `cosine` or `stable_decay` without `total_steps`.
    """
    if schedule in ("cosine", "stable_decay") and (total_steps is None or total_steps < 1):
        raise ValueError(
            f"the {schedule} schedule needs an end: set trainer.max_epochs or trainer.max_steps (for a stream, whose "
            "length is unknown, trainer.max_steps)"
        )

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps  # + 1: a first rate of 0 would waste a step
        decayed = step - warmup_steps
        if schedule == "exponential":
            return decay_rate ** (decayed / decay_steps)
        if schedule == "cosine":
            assert total_steps is not None
            # A training that continues after `total_steps` keeps the final rate.
            progress = min(1.0, decayed / max(1, total_steps - warmup_steps))
            return final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * progress))
        if schedule == "stable_decay":
            assert total_steps is not None
            # Remaining steps as a multiple of the length of the decay: more than 1 before the decay, 0 at the end.
            remaining = max(0, total_steps - step) / max(1.0, decay_fraction * total_steps)
            return final_fraction + (1 - final_fraction) * min(1.0, remaining)
        return 1.0

    return factor


def scale_lr(learning_rate: float, scaling: Scaling, batch_size: int, base_batch_size: int | None) -> float:
    """Return the learning rate for `batch_size`, given the rate that was chosen for `base_batch_size`.

    `linear`: Goyal et al. 2017 (arXiv 1706.02677); `sqrt`: Krizhevsky 2014 (arXiv 1404.5997), usual with Adam.

    Args:
        learning_rate: rate for `base_batch_size`.
        scaling: how the rate follows from `batch_size / base_batch_size`.
        batch_size: samples of an optimizer step over all ranks.
        base_batch_size: the same, for which `learning_rate` was chosen; not needed with `none`.

    Raises:
        ValueError: `base_batch_size` is needed and missing, or below 1.
    """
    if scaling == "none":
        return learning_rate
    if base_batch_size is None:
        raise ValueError(
            f"model.init_args.lr_scaling is {scaling}: set model.init_args.base_batch_size to the global batch size "
            "that model.init_args.learning_rate was chosen for"
        )
    check_number("model.init_args.base_batch_size", base_batch_size, at_least=1)
    ratio = batch_size / base_batch_size
    return learning_rate * (ratio if scaling == "linear" else math.sqrt(ratio))
