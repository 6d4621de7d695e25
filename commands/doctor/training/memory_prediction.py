"""Predicts the memory that a pretrained language model takes in training, before its weights are read."""

from typing import TYPE_CHECKING, Any

import torch

from commands.doctor.check import Finding
from commands.doctor.training.load_config import is_sharded_strategy
from commands.doctor.training.probe_step import is_on_gpu
from engine.module import LockstepModule
from engine.optim.optimizers import OPTIMIZERS
from engine.system.byte_size import GIB, format_gib

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from lightning_modules.multimodal.language.memory_estimate import MemoryEstimate

DEFAULT_TOKENS = 2048
"""Positions of a micro-batch whose data settings do not limit a row."""
_GPUS = (24, 40, 80)
"""GB of common GPUs."""
USABLE_SHARE = 0.9
"""Share of a device's memory that a prediction may take: the encoder, CUDA, NCCL and fragments take the rest."""


def predict_memory(config: "Namespace", model: LockstepModule) -> Finding | None:
    """Return the predicted memory of a step, or None for a model that is not pretrained or whose config is not here.

    Args:
        config: config of the training.
        model: the model of the config, not yet built.
    """
    settings: Any = getattr(model, "language_model_settings", None)
    if settings is None or settings.path is None or is_sharded_strategy(config.trainer.strategy):
        return None
    from lightning_modules.multimodal.language.memory_estimate import Workload, estimate_memory
    from lightning_modules.multimodal.language.precision import precision_of

    data_args = config.data.init_args
    tokens = tokens_of(data_args)
    spec = OPTIMIZERS[model.optimizer_name]
    state = 0 if model.optimizer_settings.offload else spec.state_bytes
    foreach = is_on_gpu(config.trainer.accelerator) and not model.optimizer_settings.fused
    work = Workload(tokens, state_bytes=state, in_blocks=spec.in_blocks, foreach=foreach)
    try:
        precision = precision_of(config.trainer.precision, has_bf16=True)
        estimate = estimate_memory(settings, 1, precision, work)
    except ValueError:  # the checks of config and weights report it
        return None
    sizes = (data_args.get(name) for name in ("micro_batch_size", "batch_size", "batch_size_per_device"))
    text = _describe(settings, estimate, tokens, rows=next(filter(None, sizes), 1))
    if is_on_gpu(config.trainer.accelerator):
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        if estimate.total > USABLE_SHARE * size:
            why = f"the GPU has {format_gib(size)}: memory may run out in the first step"
            return Finding("model memory", "warn", text, why, "--config configs/overlays/qlora.yaml")
    return Finding("model memory", "ok", text)


def _describe(settings: Any, estimate: "MemoryEstimate", tokens: int, rows: int) -> str:
    """Return the parts of the memory, for a micro-batch of up to `rows` rows of `tokens` positions."""
    parts = {"weights": estimate.weights, "gradients": estimate.gradients, "optimizer": estimate.optimizer}
    words = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
    kind = settings.trainable if settings.quantize == "none" else f"{settings.trainable}, {settings.quantize}"
    text = (
        f"{settings.path} ({kind}) takes about {format_gib(estimate.total)}: {words}, activations of {tokens:,} tokens "
        f"{estimate.activations / GIB:.2f}; " + _fits(estimate.total)
    )
    if rows > 1:
        text += f"; a micro-batch has up to {rows} rows, each with such activations"
    if estimate.loading > 2 * estimate.weights:
        text += f"; {format_gib(estimate.loading)} of the host while it is loaded"
    return text


def tokens_of(data: "Namespace") -> int:
    """Return the positions of a row of a micro-batch, by the settings of the data."""
    return data.get("packed_length") or data.get("max_length") or DEFAULT_TOKENS


def _fits(size: int) -> str:
    enough = [gigabytes for gigabytes in _GPUS if size <= USABLE_SHARE * gigabytes * 10**9]
    return f"it fits a GPU of {enough[0]} GB" if enough else f"more than a GPU of {_GPUS[-1]} GB has"
