"""Exports a trained model as a LlavaForConditionalGeneration of transformers, if its parts allow it.

DIR/config.json, generation_config.json, model.safetensors   the model, in one number format
DIR/tokenizer.json, tokenizer_config.json, chat_template.jinja
DIR/processor_config.json                                    preparation of images, and their placeholder tokens
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from torch import nn

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.interface import ImageChatData
from engine.export.artifacts import ExportedModel
from lightning_modules.multimodal.connector.projector import Projector
from lightning_modules.multimodal.export.llava_compatibility import obstacles
from lightning_modules.multimodal.export.llava_model import Parts, assembled, processor, weight_format
from lightning_modules.multimodal.export.model_card import described_llava, licences
from lightning_modules.multimodal.export.parts import without_progress_bars
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.vision.vision_tower import VisionTower

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

log = logging.getLogger("lockstep")


class ImageModule(Protocol):
    """What `export_llava` needs of a module: a MultimodalModule whose modality is ImageFeatures provides it."""

    encoder: nn.Module
    projector: Projector
    language_model: LanguageModel
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


def export_llava(module: ImageModule, folder: Path, merge: bool) -> ExportedModel | None:
    """Export a module as a LlavaForConditionalGeneration of transformers.

    Args:
        module: trained module. Its language model cannot be used afterwards.
        folder: existing, empty directory.
        merge: the language model may be written whole, with its adapters merged.

    Returns:
        Content of the model card, or None if transformers has no such Llava; nothing is written then.
    """
    tokenizer, tower = module.data.tokenizer, cast(VisionTower, module.encoder)
    parts = Parts(
        tower, module.projector, module.language_model, module.image_layout, tokenizer.placeholder, module.data.fit
    )
    if reasons := obstacles(parts, merge):
        log.info("as parts, not as a LlavaForConditionalGeneration of transformers: %s", "; ".join(reasons))
        return None
    log.info("as a LlavaForConditionalGeneration of transformers")
    without_progress_bars()
    answering = Answering(tokenizer.end_of_turn, tokenizer.pad, module.max_new_tokens)
    write(parts, folder, module.data.exported_tokenizer(), answering)
    return described_llava(type(module).__name__, module.image_layout.size, licences(module.pretrained))


class Answering(NamedTuple):
    """Settings of generation."""

    end_of_turn: int  # token that ends an answer
    pad: int  # token that pads prompts
    longest: int  # maximum length of an answer, in tokens


def write(parts: Parts, folder: Path, tokenizer: "PreTrainedTokenizerFast", answering: Answering) -> None:
    """Write the files. Adapters are merged and weights are cast in place, so the language model cannot be used again.

    Args:
        parts: parts of the trained model, without `obstacles`.
        folder: existing, empty directory.
        tokenizer: tokenizer with a chat template that takes images.
        answering: settings for `generate` of transformers.
    """
    from transformers import GenerationConfig

    parts.language_model.merge()  # in place: `causal_lm` is the merged model now
    model = assembled(parts)
    model.to(weight_format(parts.language_model))  # type: ignore[arg-type]  # Its decorator hides `self`.
    # Greedy decoding, as in evaluations, whatever the pretrained model's settings are. Spare rows beyond the
    # tokenizer's tokens are never generated.
    text_config: Any = model.config.text_config
    spare = list(range(parts.language_model.vocabulary, text_config.vocab_size))
    model.generation_config = GenerationConfig(
        eos_token_id=answering.end_of_turn,
        pad_token_id=answering.pad,
        max_new_tokens=answering.longest,
        suppress_tokens=spare or None,
        do_sample=False,
    )
    model.save_pretrained(folder)
    processor(parts, tokenizer).save_pretrained(folder)
