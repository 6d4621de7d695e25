"""Builds the models to train: small, and of the sizes of SigLIP-B/16 and Qwen2.5-0.5B; random weights."""

import logging
import warnings
from typing import Any, Literal, NamedTuple

import torch
from lightning.pytorch import Trainer, seed_everything

from benchmarks.vision_language.mixture import Mixture
from engine.run_trainer import as_run_trainer
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.vision_language.module import VisionLanguageModel

Precision = Literal["32-true", "bf16-mixed"]


class Sizes(NamedTuple):
    """Sizes of a training."""

    tower: dict[str, Any]
    language_model: dict[str, Any]
    vocabulary: int | None  # None: the vocabulary of the built-in tokenizer
    batch_size: int
    packed_length: int


class Layout(NamedTuple):
    """Layout of chats in rows."""

    packed: bool = False
    length_groups: int = 1


_TOWER = {"model_type": "siglip_vision_model"}
_QWEN2 = {"model_type": "qwen2", "tie_word_embeddings": True, "initializer_range": 0.02}

TINY = Sizes(
    {
        **_TOWER,
        "image_size": 16,
        "patch_size": 4,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    },
    {
        **_QWEN2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    },
    None,
    4,
    256,
)

SMALL = Sizes(
    {
        **_TOWER,
        "image_size": 56,
        "patch_size": 8,
        "hidden_size": 96,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
    },
    {
        **_QWEN2,
        "hidden_size": 192,
        "intermediate_size": 768,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    None,
    32,
    384,
)

LARGE = Sizes(
    {
        **_TOWER,
        "image_size": 224,
        "patch_size": 16,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
    {
        **_QWEN2,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    151_936,
    16,
    2048,
)


def data_settings(sizes: Sizes, layout: Layout, num_workers: int = 0) -> dict[str, Any]:
    """Return the settings of the mixture in such rows."""
    return {
        "vocabulary": sizes.vocabulary,
        "batch_size": sizes.batch_size,
        "num_workers": num_workers,
        "packed_length": sizes.packed_length if layout.packed else None,
        "length_groups": layout.length_groups,
    }


def model_settings(sizes: Sizes, compiled: bool = False, activation_checkpointing: bool = False) -> dict[str, Any]:
    """Return the settings of the second stage: tower frozen, projector and language model trained."""
    return {
        "language_model": LanguageModelSettings(
            config=sizes.language_model, compile=compiled, activation_checkpointing=activation_checkpointing
        ),
        "vision_tower": VisionTowerSettings(config=sizes.tower, compile=compiled),
        "projector": ProjectorSettings(kind="mlp", layer_norm=False),  # as the peers have it
        "learning_rate": 1e-4,
        "betas": (0.9, 0.95),
    }


def amounts_of_turns(sizes: Sizes, layout: Layout, turns: int, steps: int, warm_up: int) -> list[dict[str, float]]:
    """Return the sums over the steps of each turn of what `VisionLanguageModel.throughput_counts` counts."""
    module, data = built(sizes, layout, meta=True)
    batches = iter(data.train_dataloader())
    # The trainings discard these steps, too, so turns here and there have the same batches.
    for _ in range(warm_up):
        next(batches)
    found = [[module.throughput_counts(next(batches)) for _ in range(steps)] for _ in range(turns)]
    return [{name: sum(step[name] for step in turn) for name in turn[0]} for turn in found]


def built(
    sizes: Sizes, layout: Layout, meta: bool = False, precision: Precision = "32-true", compiled: bool = False
) -> tuple[VisionLanguageModel, Mixture]:
    """Return model and data outside a training; with `meta` without weights, for counting."""
    quiet()
    seed_everything(1, verbose=False)
    module, data = VisionLanguageModel(**model_settings(sizes, compiled)), Mixture(**data_settings(sizes, layout))
    trainer = Trainer(
        accelerator="cpu", precision=precision, logger=False, enable_checkpointing=False, enable_model_summary=False
    )
    # What a fit does before it builds the model, in the same order.
    module.trainer = trainer
    as_run_trainer(trainer).datamodule = data
    data.image_layout = module.image_layout
    with torch.device("meta" if meta else "cpu"):
        module.configure_model()
    data.setup("fit")
    return module, data


def quiet() -> None:
    """Disable the libraries' log lines between the results."""
    for name in ("lightning.pytorch", "lightning.fabric", "transformers", "bitsandbytes"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
