"""Exports a trained model as an image-text class of transformers, if its parts allow it.

DIR/config.json, generation_config.json, model.safetensors   the model, in one number format
DIR/tokenizer.json, tokenizer_config.json, chat_template.jinja
DIR/processor_config.json                                    preparation of images, and their placeholder tokens
"""

import logging
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from torch import nn

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.interface import ImageChatData
from engine.export.artifacts import ExportedModel
from lightning_modules.multimodal.connector.projector import Projector
from lightning_modules.multimodal.export.export_target import ExportTarget, ModelParts, weight_format
from lightning_modules.multimodal.export.idefics3_target import Idefics3
from lightning_modules.multimodal.export.llava_target import Llava, LlavaNext
from lightning_modules.multimodal.export.model_card import base_model_licenses, image_text_card
from lightning_modules.multimodal.export.parts_export import without_progress_bars
from lightning_modules.multimodal.export.transformers_compatibility import incompatibilities
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.vision.vision_tower import VisionTower

log = logging.getLogger("lockstep")


class ImageTextSource(Protocol):
    """What `export_image_text` needs of a module. ImageTextModule provides it."""

    encoder: nn.Module
    projector: Projector
    language_model: LanguageModel
    places: nn.Embedding | None
    max_new_tokens: int

    @property
    def image_layout(self) -> ImageLayout:
        """Sizes of the images."""

    @property
    def data(self) -> ImageChatData:
        """The run's data."""

    @property
    def pretrained(self) -> dict[str, str | None]:
        """Source of the pretrained weights of each part."""


def choose_target(layout: ImageLayout, projector: Projector) -> ExportTarget:
    """Return the class of transformers that a model comes closest to."""
    if layout.tiling == "llava_next":
        return LlavaNext()
    return Idefics3() if layout.tiling == "idefics3" or projector.settings.kind == "pixel_shuffle" else Llava()


def export_image_text(module: ImageTextSource, folder: Path, merge: bool) -> ExportedModel | None:
    """Export a module as a class of transformers.

    Args:
        module: trained module. Its language model cannot be used afterwards.
        folder: existing, empty directory.
        merge: the language model may be written whole, with its adapters merged.

    Returns:
        Content of the model card, or None if transformers has no such class; nothing is written then.
    """
    data, tower, layout = module.data, cast(VisionTower, module.encoder), module.image_layout
    tokenizer = data.tokenizer
    parts = ModelParts(
        tower=tower,
        projector=module.projector,
        language_model=module.language_model,
        layout=layout,
        placeholder=tokenizer.placeholder,
        tokenizer=data.exported_tokenizer(),
        prepare=data.prepare_images,
        resize_mode=data.resize_mode,
        learned=module.places,
    )
    target = choose_target(layout, module.projector)
    # This is not an error: every model can be exported in parts, which the caller does next.
    if reasons := incompatibilities(target, parts, merge):
        name, why = target.class_name, "; ".join(reasons)
        log.info("exporting as parts, not as %s %s of transformers: %s", target.article, name, why)
        return None
    log.info("exporting as %s %s of transformers", target.article, target.class_name)
    without_progress_bars()
    write_transformers_model(
        target, parts, folder, GenerationSettings(tokenizer.end_of_turn, tokenizer.pad, module.max_new_tokens)
    )
    return image_text_card(target, type(module).__name__, layout, base_model_licenses(module.pretrained))


class GenerationSettings(NamedTuple):
    """Settings of generation."""

    end_of_turn: int  # token that ends an answer
    pad: int  # token that pads prompts
    max_new_tokens: int


def write_transformers_model(
    target: ExportTarget, parts: ModelParts, folder: Path, generation: GenerationSettings
) -> None:
    """Write the files. Adapters are merged and weights are cast in place, so the language model cannot be used again.

    Args:
        target: the class.
        parts: parts of the trained model, without `incompatibilities`.
        folder: existing, empty directory.
        generation: settings for `generate` of transformers.
    """
    from transformers import GenerationConfig

    parts.language_model.merge()  # in place: `causal_lm` is the merged model now
    model = target.build_model(parts)
    model.to(weight_format(parts.language_model))
    # Greedy decoding, as in evaluations, whatever the pretrained model's settings are. Spare rows beyond the
    # tokenizer's tokens are never generated.
    text_config: Any = model.config.text_config
    spare = list(range(parts.language_model.vocabulary, text_config.vocab_size))
    model.generation_config = GenerationConfig(
        eos_token_id=generation.end_of_turn,
        pad_token_id=generation.pad,
        max_new_tokens=generation.max_new_tokens,
        suppress_tokens=spare or None,
        do_sample=False,
    )
    model.save_pretrained(folder)
    target.processor(parts).save_pretrained(folder)
