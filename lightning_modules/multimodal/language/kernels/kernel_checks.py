"""Checks that a training can use the kernels that its settings choose."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from lightning_modules.multimodal.language.logit_processing import has_plain_logits
from lightning_modules.multimodal.language.settings import LanguageModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SECTION = "model.init_args.language_model"
_LOSS, _ATTENTION = f"{_SECTION}.loss_kernel is liger", f"{_SECTION}.attention is flex_attention"


def require_gpu_kernels(
    settings: LanguageModelSettings, device: torch.device, sharded: bool, dtype: torch.dtype
) -> None:
    """Check that a training can use the chosen kernels.

    Args:
        settings: settings of the model.
        device: device that trains.
        sharded: whether each rank holds a shard of the weights.
        dtype: format of trained weights.

    Raises:
        ValueError: a kernel does not run on the device, or not with another setting.
    """
    if settings.attention == "flex_attention" and device.type != "cuda":
        raise ValueError(
            f"{_ATTENTION}, which torch trains on CUDA only, and the device is {device.type}. Set it to sdpa, which "
            "computes the same"
        )
    if settings.loss_kernel == "torch":
        return
    instead = "Set it to torch, which computes the same"
    if device.type != "cuda":
        raise ValueError(f"{_LOSS}, which needs CUDA, and the device is {device.type}. {instead}")
    # Liger reads the weight itself instead of calling the layer, so FSDP's hooks would not gather it.
    if sharded:
        raise ValueError(
            f"{_LOSS}, but it needs the whole output layer, and the strategy shards the weights. {instead}"
        )
    if dtype == torch.float64:
        raise ValueError(f"{_LOSS}, but its terms are in 32 bits, and trainer.precision is 64-true. {instead}")


def require_plain_output(network: "PreTrainedModel", settings: LanguageModelSettings) -> None:
    """Raise ValueError if Liger's cross-entropy would not have the model's logits."""
    if settings.loss_kernel != "liger":
        return
    config = network.config.get_text_config()
    # Liger fuses the layer and the loss; nothing can be computed between them.
    if not has_plain_logits(config):
        reason = f"a {config.model_type} scales or caps its logits"
    elif type(network.get_output_embeddings()) is not nn.Linear:
        reason = f"the output layer is a {type(network.get_output_embeddings()).__name__}, as with adapters of its own"
    else:
        return
    raise ValueError(f"{_LOSS}, but {reason}; expected a linear layer alone. Set it to torch")
