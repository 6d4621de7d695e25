"""Refuses trainings that cannot be in one compiled graph of fixed shapes."""

import os
import shutil
from importlib.util import find_spec

import torch

from datamodules.recommender.interface import RecommenderData
from engine.strategies.fsdp import has_sharded_weights
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.time_interval import AttentionKernel
from lightning_modules.recommender.sparse_item_rows import ItemOptimizer

_MODEL = "model.init_args."
_OPTION = f"{_MODEL}compile_step"


def check_compiler(device: torch.device) -> None:
    """Check that torch can compile for the device.

    Raises:
        ValueError: it cannot, or it has no compiler.
    """
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"{_OPTION} true compiles for CPUs and CUDA, and the device is {device.type}: use false")
    if device.type == "cuda" and find_spec("triton") is None:
        raise ValueError(f"{_OPTION} true: the package triton is not installed. pip install triton, or use false")
    names = [name for name in (os.environ.get("CXX"), "g++", "clang++") if name]
    if device.type == "cpu" and not any(map(shutil.which, names)):
        raise ValueError(
            f"{_OPTION} true: found no C++ compiler ({', '.join(names)}), which torch needs on a CPU: install one, for "
            "example with apt-get install g++, or use false"
        )


def check_compiled_step(
    architecture: ArchitectureSettings,
    kernel: AttentionKernel,
    item_optimizer: ItemOptimizer,
    data: RecommenderData,
    strategy: object,
) -> None:
    """Check that every part of a training can be in one graph of fixed shapes.

    Args:
        architecture: settings of the encoder.
        kernel: `attention_kernel` of the module.
        item_optimizer: that of the module.
        data: data of the run.
        strategy: the trainer's.

    Raises:
        ValueError: a part cannot.
    """
    attention, residual = architecture.attention, architecture.residual
    items = "a batch has any number of items, and a graph has fixed shapes"
    refused = [
        (attention == "gru", f"{_MODEL}attention gru", "torch does not compile its layers: use another attention"),
        ("mhc" in residual, f"{_MODEL}residual {residual}", "its diagnostics leave the graph: use plain or gated"),
        (architecture.activation_checkpointing, f"{_MODEL}activation_checkpointing true",
         "blocks are computed outside of the graph again: use false"),
        (kernel == "triton", f"{_MODEL}attention_kernel triton", "torch does not compile the kernel: use torch"),
        (item_optimizer != "dense", f"{_MODEL}item_optimizer {item_optimizer}", f"{items}: use dense"),
        (data.item_features is not None, "data.init_args.item_features", f"{items}: remove them"),
        (data.other_negatives != "", data.other_negatives, f"{items}: use uniform negatives"),
        (has_sharded_weights(strategy), f"trainer.strategy {type(strategy).__name__}",
         "weights are gathered outside of the graph: use ddp"),
    ]  # fmt: skip
    for is_set, setting, reason in refused:
        if is_set:
            raise ValueError(f"{_OPTION} true with {setting}: {reason}, or compile_step false")
