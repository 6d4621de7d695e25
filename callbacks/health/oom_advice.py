"""Advises on an out-of-memory error: the batch, the peak, and the settings to change, with values for this run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from engine.distributed.data_parallel_rank import strategy_tensor_parallel_size
from engine.io.name_list import join_names
from engine.module import LockstepModule
from engine.run_trainer import as_run_trainer
from engine.system import host_memory
from engine.system.byte_size import GIB, format_gib

_MAX_SHAPES = 8  # of the tensors of a micro-batch, in a message

START, LOADING, FORWARD, BACKWARD, STEP = (
    "at start-up", "while loading", "in the forward pass", "in the backward pass", "in the optimizer's step",
)  # fmt: skip
VALIDATION, TEST, PREDICTION = "in the validation", "in the test", "in the prediction"
_EVALUATION_PHASES = (VALIDATION, TEST, PREDICTION)
_BATCH_PHASES = (LOADING, FORWARD, BACKWARD)


def oom_message(trainer: Trainer, pl_module: LockstepModule, phase: str, batch: object) -> str:
    """Return lines with the phase, the batch, the peak, and the settings to change.

    Args:
        trainer: of the run; has the batch plan, the strategy and the precision.
        pl_module: module; names its own settings that save memory.
        phase: what was computed, one of the constants above.
        batch: current micro-batch; None before the first.
    """
    device = trainer.strategy.root_device
    lines = [f"out of memory {phase}", *_batch_lines(trainer, phase, batch), f"peak: {describe_peak_memory(device)}"]
    settings = list(_settings(trainer, pl_module, phase, device))
    for index, (option, effect) in enumerate(settings):
        lines.append(f"{'first change' if index == 0 else 'then'}: {option} ({effect})")
    may_find = device.type == "cuda" and not getattr(trainer, "auto_micro_batch", False)
    if may_find and phase in _BATCH_PHASES and "micro_batch_size" in "".join(option for option, _ in settings):
        lines.append("or let the program find the micro-batch size: --trainer.auto_micro_batch true")
    return "\n".join(lines)


def describe_peak_memory(device: torch.device) -> str:
    """Return the peak memory of this process and the available total, as text."""
    if device.type != "cuda":
        limit = host_memory.memory_limit()
        peak, now = host_memory.peak_resident_memory(), host_memory.resident_memory()
        return f"{format_gib(peak)} resident ({format_gib(now)} now) of {format_gib(limit.size)} ({limit.source})"
    free, total = torch.cuda.mem_get_info(device)
    peak, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.memory_reserved(device)
    text = f"{format_gib(peak)} in tensors, {format_gib(reserved)} reserved, of {format_gib(total)}"
    text += f" ({torch.cuda.get_device_name(device)})"
    # What neither is free nor belongs to torch's allocator in this process.
    others = total - free - reserved
    if others > GIB:  # a CUDA context takes about half of it
        text += f"; {format_gib(others)} are taken by other processes or outside torch, see nvidia-smi"
    if reserved - torch.cuda.memory_allocated(device) > reserved // 5:
        # More than a fifth of the reserve is free, but in pieces that are too small.
        text += "; reserved memory is fragmented: PYTORCH_ALLOC_CONF=expandable_segments:True"
    return text


def describe_tensors(batch: object) -> str:
    """Return the tensors of a micro-batch, largest first: `history.tokens [8, 50] int64, targets [8] int64`."""
    tensors = sorted(_tensors(batch, ""), key=lambda named: -named[1].numel() * named[1].element_size())
    texts = [
        f"{name or 'tensor'} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        for name, tensor in tensors
    ]
    return join_names(texts, _MAX_SHAPES)


def _batch_lines(trainer: Trainer, phase: str, batch: object) -> list[str]:
    datamodule = as_run_trainer(trainer).datamodule
    if phase in _EVALUATION_PHASES:
        size = f"batch: at most {datamodule.evaluation_batch_size} samples on each rank"
    else:
        size = f"batch: {datamodule.plan}"
    return [size, *([f"current micro-batch: {describe_tensors(batch)}"] if batch is not None else [])]


def _settings(
    trainer: Trainer, pl_module: LockstepModule, phase: str, device: torch.device
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a setting with its value, and its effect; the cheapest first."""
    datamodule, on_gpu = as_run_trainer(trainer).datamodule, device.type == "cuda"
    if phase in _EVALUATION_PHASES:
        size = datamodule.evaluation_batch_size
        if size > 1:
            yield f"--data.init_args.evaluation_batch_size {size // 2}", "metrics do not depend on it"
        return
    if phase in _BATCH_PHASES:
        # Halving the micro-batch keeps all numbers up to rounding, so it comes first.
        smaller = datamodule.plan.halved() if pl_module.supports_grad_accumulation else None
        if smaller is not None:
            steps = f"{smaller.accumulation} accumulation step{'s' * (smaller.accumulation != 1)}"
            option = f"--data.init_args.micro_batch_size {smaller.micro_batch_size}"
            yield option, f"keeps the global batch of {smaller.batch_size}, with {steps}"
        yield from pl_module.memory_saving_options()
    if on_gpu and str(trainer.precision).startswith("32"):
        yield "--trainer.precision bf16-mixed", "activations of half the size; on GPUs of 2020 and later"
    if on_gpu and _may_use_8_bit(trainer, pl_module):
        yield "--model.init_args.optimizer adamw_8bit", "optimizer state in a quarter of the memory"
    if on_gpu and _may_shard(trainer, pl_module):
        yield "--config configs/overlays/fsdp.yaml", f"weights and optimizer state in {trainer.world_size} shards"
    # On a GPU the exhausted memory is the device's, where workers have none.
    if datamodule.workers and not on_gpu:
        yield f"--data.init_args.num_workers {datamodule.workers // 2}", "each worker needs memory"
    if not on_gpu:
        yield "more memory for the container or job", "or a smaller model"


def _may_use_8_bit(trainer: Trainer, pl_module: LockstepModule) -> bool:
    """Return whether `adamw_8bit` can replace the optimizer (see optimizer_checks) and reduces a GPU's memory."""
    settings = pl_module.optimizer_settings
    divides_layers = strategy_tensor_parallel_size(trainer.strategy) > 1
    # With the offload, the state is in CPU memory.
    is_refused = settings.fused or pl_module.row_tables or divides_layers
    return pl_module.optimizer_name == "adamw" and not (settings.offload or is_refused)


def _may_shard(trainer: Trainer, pl_module: LockstepModule) -> bool:
    """Return whether FSDP can replace the strategy, see optimizer_checks."""
    settings = pl_module.optimizer_settings
    is_refused = settings.offload or settings.fused
    return trainer.world_size > 1 and isinstance(trainer.strategy, DDPStrategy) and not is_refused


def _tensors(content: object, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(content, Tensor):
        yield name, content
    # A NamedTuple is a Sequence, too; its fields have names.
    elif isinstance(content, tuple) and hasattr(content, "_fields"):
        yield from _named_tensors(zip(content._fields, content, strict=True), name)
    elif isinstance(content, Mapping):
        yield from _named_tensors(content.items(), name)
    elif hasattr(content, "__dataclass_fields__"):
        yield from _named_tensors(((field, getattr(content, field)) for field in content.__dataclass_fields__), name)
    elif isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
        yield from _named_tensors(enumerate(content), name)


def _named_tensors(parts: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    for key, part in parts:
        yield from _tensors(part, f"{name}.{key}" if name else str(key))
