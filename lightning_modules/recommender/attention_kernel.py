"""Chooses the implementation of time-interval attention on CUDA."""

from importlib.util import find_spec

import torch

from lightning_modules.recommender.networks.attention.kinds import Attention
from lightning_modules.recommender.networks.attention.time_interval import AttentionKernel, TimeIntervalAttention
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

_OPTION = "model.init_args.attention_kernel"


def check_attention_kernel(kernel: AttentionKernel, attention: Attention, device: torch.device) -> None:
    """Check that a training can use the kernel.

    Raises:
        ValueError: `triton` for another attention, another device than CUDA, sums in a fixed order, or where Triton is
            not installed.
    """
    if kernel == "torch":
        return
    if attention != "time_interval":
        raise ValueError(
            f"{_OPTION} triton with model.init_args.attention {attention}, which torch's own kernels compute: use torch"
        )
    if device.type != "cuda":
        raise ValueError(f"{_OPTION} triton needs CUDA, and the device is {device.type}: use torch")
    # Refused and not replaced by `torch`: the user has set two options that exclude each other.
    if torch.are_deterministic_algorithms_enabled():
        raise ValueError(
            f"{_OPTION} triton with trainer.deterministic true: its sums over intervals have no fixed order. Use torch"
        )
    if find_spec("triton") is None:
        raise ValueError(f"{_OPTION} triton: the package triton is not installed. pip install triton, or use torch")


def set_attention_kernel(encoder: SequenceEncoder, kernel: AttentionKernel) -> None:
    """Set the kernel of all time-interval attention of an encoder."""
    for layer in encoder.modules():
        if isinstance(layer, TimeIntervalAttention):
            layer.kernel = kernel
