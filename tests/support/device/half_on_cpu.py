"""Computes in float16 with a loss scaler on the CPU, where Lightning takes bfloat16 instead."""

import torch
from lightning.pytorch.plugins import MixedPrecision


class HalfOnCPU(MixedPrecision):
    """`trainer.precision 16-mixed` as on a GPU.

    Args:
        scale: initial scale of the loss; a GPU's training starts with 2^16.
    """

    def __init__(self, scale: float = 2.0**16) -> None:
        super().__init__("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))


def half_on_cpu(**settings: float) -> list[str]:
    """Return the options of a training in float16 on the CPU."""
    options = [f"--trainer.plugins={__name__}.HalfOnCPU"]
    return options + [f"--trainer.plugins.init_args.{key}={value}" for key, value in settings.items()]
