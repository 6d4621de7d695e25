"""Builds tiny models of images and text; computes their outputs here, and their exports' outputs in transformers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from datamodules.multimodal.batch import ImageLayout, Images
from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.images.image_processing import prepare_images
from datamodules.multimodal.images.tiling import ResizeMode, collate_views
from datamodules.multimodal.text.chat_encoder import ChatEncoder, Message
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from datamodules.multimodal.text.tokenizer_export import exported_tokenizer
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.export.export_target import ModelParts
from lightning_modules.multimodal.export.image_text_export import (
    GenerationSettings,
    choose_target,
    write_transformers_model,
)
from lightning_modules.multimodal.export.transformers_compatibility import incompatibilities
from lightning_modules.multimodal.image_features import ImageFeatures
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.modality import FeatureNetworks
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower
from tests.support.families.colored_squares import LANGUAGE_MODEL

SIZES = {"patch_size": 8, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
PROJECTORS = {
    "tile_positions": ProjectorSettings(layer_norm=False),
    "llava_next": ProjectorSettings(layer_norm=False),
    "idefics3": ProjectorSettings("pixel_shuffle", bias=False, layer_norm=False),
}
LONGEST = 12
"""Maximum length of an answer, in tokens."""


class DataOfLayout:
    """What ImageFeatures reads of the data."""

    def __init__(self, max_tiles: int, tiling: str) -> None:
        self.max_tiles, self.tiling = max_tiles, tiling


def tiny_parts(
    tokenizer: ChatTokenizer,
    tiling: str = "tile_positions",
    max_tiles: int = 1,
    tower: str = "siglip_vision_model",
    edge: int = 32,
    layer: int | None = None,
    projector: ProjectorSettings | None = None,
    precision: str = "32-true",
    **language_model: Any,
) -> ModelParts:
    """A model with random weights, norms and biases included, so that a missing one shows."""
    torch.manual_seed(3)
    formats, projector = precision_of(precision, has_bf16=True), projector or PROJECTORS[tiling]
    size = {"num_patches": (edge // 8) ** 2} if tower == "siglip2_vision_model" else {"image_size": edge}
    settings = VisionTowerSettings(config={"model_type": tower, **SIZES, **size}, feature_layer=layer)
    data: Any = DataOfLayout(max_tiles, tiling)
    features = ImageFeatures(settings)
    layout = features.layout(projector, data)
    vision = VisionTower(settings, formats)
    model = LanguageModelSettings(config={**LANGUAGE_MODEL, **language_model})
    language = LanguageModel(model, tokenizer.vocabulary_size, formats)
    connector, learned = Projector(projector, 24, 32), features.build_view_embeddings(data, 32)
    with torch.no_grad():
        for part in (vision, connector, language, learned):
            for parameter in part.parameters() if part is not None else ():
                parameter += 0.1 * torch.randn_like(parameter)
    for network in (vision, connector, language):
        network.eval()
    copied = exported_tokenizer(tokenizer, "<image>", layout.special_tokens)
    ready = prepared(layout)
    return ModelParts(vision, connector, language, layout, tokenizer.placeholder, copied, ready, learned=learned)


def prepared(layout: ImageLayout, resize_mode: ResizeMode = "stretch") -> Callable[[Sequence[Image.Image]], Images]:
    """Prepares images as the DataModules do."""
    return lambda images: collate_views([prepare_images(images, layout, resize_mode)[1]], layout)


def export(parts: ModelParts, tokenizer: ChatTokenizer, folder: Path) -> tuple[Any, Any]:
    """Write an export; the model and the processor that transformers loads from it."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    target = choose_target(parts.layout, parts.projector)
    assert incompatibilities(target, parts, merge=False) == []
    write_transformers_model(target, parts, folder, GenerationSettings(tokenizer.end_of_turn, tokenizer.pad, LONGEST))
    model, found = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == target.class_name
    assert not any(found.values()), "nothing is made up, nothing is left over"
    return model.eval(), AutoProcessor.from_pretrained(folder)


def chat_item(parts: ModelParts, question: str, pictures: Sequence[Image.Image]) -> ChatItem:
    """A question about pictures, as a sample of the data."""
    return ChatItem(
        [Message(role="user", content=question)], *prepare_images(pictures, parts.layout, parts.resize_mode)
    )


class Computed:
    """What a model computes here for a sample: tokens [1, L], pixels, embeddings [1, L, C]."""

    def __init__(self, parts: ModelParts, tokenizer: ChatTokenizer, item: ChatItem) -> None:
        self.parts, self.tokenizer = parts, tokenizer
        chat = ChatEncoder(tokenizer, "<image>").prompt(item.messages, item.counts)
        self.tokens = torch.from_numpy(chat.tokens)[None]
        images = collate_views([item.encoder_input], parts.layout)
        self.pixels = normalised(parts, images.pixels)
        networks = FeatureNetworks(parts.tower, parts.projector, parts.learned)
        with torch.no_grad():
            features: Features = ImageFeatures(parts.tower.settings).compute(networks, images)
            self.embeddings = parts.language_model.embed(self.tokens)
            self.embeddings[self.tokens == parts.placeholder] = features.vectors.to(self.embeddings.dtype)

    @torch.no_grad()
    def scores(self) -> Tensor:
        """Logits [1, L, V]."""
        positions = torch.arange(self.tokens.shape[1])[None]
        model = self.parts.language_model
        return model.logits(model.hidden_states(self.embeddings, positions))

    def answer(self) -> list[int]:
        """Tokens of the answer, without its end."""
        ends = [self.tokenizer.end_of_turn]
        (answer,) = self.parts.language_model.generate(self.embeddings, self.tokens >= 0, LONGEST, ends)
        return answer


def normalised(parts: ModelParts, pixels: Tensor) -> Tensor:
    """Pixels [V, 3, size, size] as the tower reads them, whether as images or as patches."""
    scale, mean, deviation = parts.tower.normalization
    return torch.stack([(pixels[:, i] * scale - mean[i]) / deviation[i] for i in range(3)], dim=1)


def noise(number: int, height: int, width: int) -> Image.Image:
    """A picture without two equal regions."""
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8))
