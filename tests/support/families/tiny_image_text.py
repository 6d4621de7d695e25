"""Directories of tiny image-text models with random weights, one for each class that the fine-tuning supports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.support.families.image_text.gemma import gemma3, paligemma
from tests.support.families.image_text.idefics import idefics3, smolvlm
from tests.support.families.image_text.internvl import internvl
from tests.support.families.image_text.llava import llava, llava_next, llava_onevision
from tests.support.families.image_text.qwen import qwen2_5_vl, qwen2_vl, qwen3_vl

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


def write_tiny_image_text(name: str, folder: Path) -> Path:
    """Write the directory of a tiny model: weights, config and processor, as save_pretrained does."""
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(7)
    config, processor = CLASSES[name]()
    model = AutoModelForImageTextToText.from_config(config)
    model.generation_config.eos_token_id = config.get_text_config().eos_token_id
    model.generation_config.pad_token_id = config.get_text_config().pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
