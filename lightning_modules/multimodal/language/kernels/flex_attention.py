"""Uses flex attention (Dong et al. 2024, arXiv 2412.05496) for packed rows, which skips the blocks between chats.

transformers makes the block mask from the positions, and compiles the kernel once. torch has its backward pass on CUDA
only. Elsewhere, and to generate, sdpa computes the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from lightning_modules.multimodal.language.settings import LanguageModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def evaluates_with_sdpa(settings: LanguageModelSettings, device: torch.device | None) -> bool:
    """Return whether a model with flex attention is built with sdpa, as it does not train on this device."""
    return settings.attention == "flex_attention" and (device is None or device.type != "cuda")


@contextmanager
def cached_attention(network: "PreTrainedModel", settings: LanguageModelSettings) -> Iterator[None]:
    """Replace flex attention by sdpa inside the context: it would compile for a cache that grows token by token."""
    if settings.attention != "flex_attention":
        yield
        return
    # Restored afterwards, as evaluations run in the middle of a training.
    network.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        network.set_attn_implementation("flex_attention")
