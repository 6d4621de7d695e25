"""Sets the number formats of a language model for each `trainer.precision` of Lightning."""

from typing import NamedTuple

import torch
from torch import nn


class Precision(NamedTuple):
    """Formats of a language model's weights and of its computation."""

    frozen: torch.dtype
    """Format of frozen weights: that of the computation, so that no step casts them."""
    trained: torch.dtype
    """Format of trainable weights: wide enough that small updates do not round to zero."""
    autocast: torch.dtype | None
    """Format of products; None: the format of the weights."""


_MIXED_BF16 = Precision(torch.bfloat16, torch.float32, torch.bfloat16)
_FORMATS = {
    "32-true": Precision(torch.float32, torch.float32, None),
    "64-true": Precision(torch.float64, torch.float64, None),
    "bf16-true": Precision(torch.bfloat16, torch.bfloat16, None),
    "bf16-mixed": _MIXED_BF16,
    "16-mixed": _MIXED_BF16,
}
_ALIASES = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def precision_of(trainer_precision: str | int, has_bf16: bool) -> Precision:
    """Return the formats for Lightning's `trainer.precision`.

    Under 16-mixed the language model runs in bf16: Qwen2 and Qwen2.5 overflow in fp16 (QwenLM/Qwen3 issues 761, 868).
    Under bf16-true Lightning also stores trainable weights in bf16, where most updates of 1e-5 round to zero.

    Args:
        trainer_precision: `trainer.precision`; Lightning's short forms such as `bf16` are accepted.
        has_bf16: whether the device computes in bf16, see `device_has_bf16`.

    Raises:
        ValueError: language models do not run in this precision.
    """
    name = _ALIASES.get(str(trainer_precision), str(trainer_precision))
    if name not in _FORMATS:
        raise ValueError(
            f"trainer.precision is {trainer_precision}; a language model runs in {', '.join(_FORMATS)}"
            + (" (fp16 alone overflows)" if name == "16-true" else "")
        )
    if torch.bfloat16 in _FORMATS[name] and not has_bf16:
        reason = (
            " (16-mixed, too, runs language models in bf16: in fp16 Qwen2.5 overflows)" if name == "16-mixed" else ""
        )
        raise ValueError(
            f"trainer.precision is {trainer_precision}, but this device has no bf16{reason}; set it to 32-true"
        )
    return _FORMATS[name]


def device_has_bf16(device: torch.device) -> bool:
    """Return whether the device computes in bf16 without emulation (CUDA: since Ampere)."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return torch.cuda.is_bf16_supported(including_emulation=False)
    return True


def set_dtypes(network: nn.Module, precision: Precision) -> None:
    """Cast frozen and trainable weights to their formats, in place. Tied weights stay tied; buffers do not change."""
    for parameter in network.parameters():
        if not parameter.is_floating_point():  # quantized
            continue
        # The data is replaced and not the parameter, so tied weights stay tied.
        parameter.data = parameter.data.to(precision.trained if parameter.requires_grad else precision.frozen)
