"""Directories of tiny image-text models with random weights, one for each class that the fine-tuning supports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from datamodules.multimodal.text.tokenizer import load_tokenizer
from tests.support.families.image_text.gemma import gemma3, paligemma
from tests.support.families.image_text.idefics import idefics3, smolvlm
from tests.support.families.image_text.internvl import internvl
from tests.support.families.image_text.llava import llava, llava_next, llava_onevision
from tests.support.families.image_text.qwen import qwen2_5_vl, qwen2_vl, qwen3_vl
from tests.support.families.image_text.tokens import TEXTS
from tests.support.families.image_text_exports import export, tiny_parts

CLASSES: dict[str, Callable[[], tuple[Any, Any]]] = {
    built.__name__: built
    for built in (
        llava,
        llava_next,
        llava_onevision,
        qwen2_vl,
        qwen2_5_vl,
        qwen3_vl,
        internvl,
        idefics3,
        smolvlm,
        paligemma,
        gemma3,
    )
}

EXPORTS = {
    "own_llava": ("tile_positions", 1),
    "own_llava_next": ("llava_next", 2),
    "own_idefics3": ("idefics3", 2),
}
"""{name: tiling and tiles per edge} of models of parts that Lockstep exported as a class of transformers."""

DIRECTORIES = (*CLASSES, *EXPORTS)
"""Names of all directories."""


def write_tiny_image_text(name: str, folder: Path) -> Path:
    """Write the directory of a tiny model: weights, config and processor, as save_pretrained or an export does."""
    from transformers import AutoModelForImageTextToText

    if name in EXPORTS:
        tiling, max_tiles = EXPORTS[name]
        tokenizer = load_tokenizer(None, TEXTS)
        export(tiny_parts(tokenizer, tiling, max_tiles), tokenizer, folder)
        return folder
    torch.manual_seed(7)
    config, processor = CLASSES[name]()
    model = AutoModelForImageTextToText.from_config(config)
    model.generation_config.eos_token_id = config.get_text_config().eos_token_id
    model.generation_config.pad_token_id = config.get_text_config().pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
