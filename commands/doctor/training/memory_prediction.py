"""Predicts the memory that a pretrained language model takes in training, before its weights are read."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from commands.doctor.check import Finding
from commands.doctor.training.load_config import is_sharded_strategy
from commands.doctor.training.probe_step import is_on_gpu
from engine.module import LockstepModule
from engine.optim.optimizers import OPTIMIZERS
from engine.system.byte_size import GIB, format_gib
from engine.system.extras import MissingPackagesError
from engine.system.installation import PROGRAM

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from datamodules.vision_language.pretrained.processor import ModelProcessor
    from lightning_modules.multimodal.language.precision import Precision
    from lightning_modules.multimodal.step_trace import MemoryEstimate, Workload
    from lightning_modules.vision_language.pretrained.module import PretrainedVisionLanguageModel

DEFAULT_TOKENS = 2048
"""Positions of a micro-batch whose data settings do not limit a row."""
_GPUS = (24, 40, 80)
"""GB of common GPUs."""
USABLE_SHARE = 0.9
"""Share of a device's memory that a prediction may take.

CUDA, NCCL, fragments and an encoder that is not predicted take the rest.
"""
_NOT_KNOWN = "whether a step fits into the memory is not known before it runs"


def predict_memory(config: "Namespace", model: LockstepModule) -> Finding | None:
    """Return the predicted memory of a step, or why it is not predicted; None for a model that is not pretrained.

    Args:
        config: config of the training.
        model: the model of the config, not yet built.
    """
    settings: Any = getattr(model, "language_model_settings", None)
    if settings is None or settings.path is None:
        return None
    from lightning_modules.multimodal.language.memory_estimate import estimate_memory
    from lightning_modules.multimodal.language.precision import precision_of
    from lightning_modules.multimodal.step_trace import Workload
    from lightning_modules.vision_language.pretrained.module import PretrainedVisionLanguageModel

    image_text = model if isinstance(model, PretrainedVisionLanguageModel) else None
    if is_sharded_strategy(config.trainer.strategy):
        if image_text is not None:
            found = "not predicted: the strategy shards the weights, and an image-text model is not sharded"
            return Finding("model memory", "fail", found, "the training is refused", "--trainer.strategy ddp")
        cluster = f"{PROGRAM} doctor --plan gpus=N,gb=N --config FILE predicts it"
        return Finding("model memory", "ok", f"not predicted: the strategy shards the weights; {cluster}")
    data_args = config.data.init_args
    tokens = tokens_of(data_args)
    spec = OPTIMIZERS[model.optimizer_name]
    state = 0 if model.optimizer_settings.offload else spec.state_bytes
    foreach = is_on_gpu(config.trainer.accelerator) and not model.optimizer_settings.fused
    work = Workload(tokens, state_bytes=state, in_blocks=spec.in_blocks, foreach=foreach)
    try:
        precision = precision_of(config.trainer.precision, has_bf16=True)
        if image_text is not None:
            row_content, estimate = _estimate_with_images(image_text, settings, precision, work, data_args)
        else:
            row_content, estimate = f"{tokens:,} tokens", estimate_memory(settings, 1, precision, work)
    except MissingPackagesError as error:
        return Finding("model memory", "warn", f"not predicted: {error.lacking}", _NOT_KNOWN, error.command)
    except ValueError as error:
        return Finding("model memory", "warn", f"not predicted: {error}", _NOT_KNOWN)
    sizes = (data_args.get(name) for name in ("micro_batch_size", "batch_size", "batch_size_per_device"))
    text = _describe(settings, estimate, row_content, rows=next(filter(None, sizes), 1))
    if is_on_gpu(config.trainer.accelerator):
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        if estimate.total > USABLE_SHARE * size:
            why = f"the GPU has {format_gib(size)}: memory may run out in the first step"
            remedy = "--config configs/overlays/qlora.yaml"
            if image_text is not None:
                remedy += (
                    ", smaller images (model.init_args.image_processor), or shorter rows (data.init_args.max_length)"
                )
            return Finding("model memory", "warn", text, why, remedy)
    return Finding("model memory", "ok", text)


def _estimate_with_images(
    model: "PretrainedVisionLanguageModel", settings: Any, precision: "Precision", work: "Workload", data_args: Any
) -> tuple[str, "MemoryEstimate"]:
    """Return what a row of an image-text model has, in words, and the memory of a step.

    Raises:
        MissingPackagesError: the processor needs an extra.
        ValueError: the model cannot be built from its config, or its processor is not here.
    """
    from commands.doctor.training.image_rows import fullest_row
    from lightning_modules.vision_language.pretrained.image_text_classes import find_image_text_class
    from lightning_modules.vision_language.pretrained.memory_estimate import estimate_image_text_memory

    is_packed = find_image_text_class(model.path, model.config).packing_obstacle is None
    packed_length = data_args.get("packed_length") if is_packed else None
    longest_chat = data_args.get("max_length") or packed_length or DEFAULT_TOKENS
    row = fullest_row(_processor(model), longest_chat, packed_length)
    work = work._replace(tokens=row.rows.tokens.shape[1])
    estimate = estimate_image_text_memory(
        model.config, settings, model.part_settings, precision, work, row.rows, row.images
    )
    images = "an image" if row.num_images == 1 else f"{row.num_images} images"
    return f"{work.tokens:,} tokens with {images} of {row.image_tokens:,} tokens", estimate


def _processor(model: "PretrainedVisionLanguageModel") -> "ModelProcessor":
    """Load the processor of a model without downloading anything.

    Raises:
        MissingPackagesError: it needs an extra.
        ValueError: it is not here or cannot be loaded.
    """
    from datamodules.vision_language.pretrained.processor import ModelProcessor
    from lightning_modules.multimodal.checkpoints.base_model_identity import folder_of

    try:
        return ModelProcessor(model.path, folder_of(model.path), model.image_settings)
    except MissingPackagesError:
        raise
    except (OSError, ValueError) as error:
        if Path(model.path).expanduser().is_dir():
            raise
        # A repository of the hub. Its config may be in the cache alone, because the model has read it.
        raise ValueError(f"{model.path} is to be downloaded first: hf download {model.path}") from error


def _describe(settings: Any, estimate: "MemoryEstimate", row_content: str, rows: int) -> str:
    """Return the parts of the memory, for a micro-batch of up to `rows` rows with this content."""
    parts = {"weights": estimate.weights, "gradients": estimate.gradients, "optimizer": estimate.optimizer}
    words = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
    kind = settings.trainable if settings.quantize == "none" else f"{settings.trainable}, {settings.quantize}"
    text = (
        f"{settings.path} ({kind}) takes about {format_gib(estimate.total)}: {words}, activations of {row_content} "
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
