"""Exports a Llava with random weights, and records what `predict` answers with it."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.tiling import collate_views
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from datamodules.multimodal.text.tokenizer_export import exported_tokenizer
from datamodules.vision_language.chat_dataset import ImageProcessor
from datamodules.vision_language.predict_questions import PredictDataset
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.export.export_target import ModelParts
from lightning_modules.multimodal.export.image_text_export import GenerationSettings, write_transformers_model
from lightning_modules.multimodal.export.llava_target import Llava
from lightning_modules.multimodal.export.model_card import image_text_card
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower
from tests.support.families.bos_tokenizers import KINDS
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER
from tests.support.families.image_text_exports import prepared

LAYOUT = ImageLayout(size=TOWER["image_size"], tokens=4)


def export(folder: Path, kind: str, template: str) -> tuple[ModelParts, ChatTokenizer]:
    """Write a Llava with random weights and its card."""
    published = KINDS[kind]()
    published.chat_template = template
    tokenizer = ChatTokenizer(published, kind)
    torch.manual_seed(3)
    formats = precision_of("32-true", has_bf16=True)
    tower = VisionTower(VisionTowerSettings(config=TOWER), formats)
    language = LanguageModel(LanguageModelSettings(config=LANGUAGE_MODEL), tokenizer.vocabulary_size, formats)
    projector = Projector(ProjectorSettings(layer_norm=False), TOWER["hidden_size"], LANGUAGE_MODEL["hidden_size"])
    copied = exported_tokenizer(tokenizer, "<image>")
    parts = ModelParts(tower, projector, language, LAYOUT, tokenizer.placeholder, copied, prepared(LAYOUT))
    with torch.no_grad():
        for part in parts[:3]:
            for parameter in part.eval().parameters():  # far from uniform, so that an answer has several tokens
                parameter += 0.3 * torch.randn_like(parameter)
    write_transformers_model(Llava(), parts, folder, GenerationSettings(tokenizer.end_of_turn, tokenizer.pad, 12))
    (folder / "README.md").write_text(image_text_card(Llava(), "A", LAYOUT, {}).usage)
    return parts, tokenizer


def asked(tokenizer: ChatTokenizer, folder: Path) -> tuple[Tensor, Any]:
    """The tokens and views that `predict` makes of the card's question about folder/picture.png."""
    (folder / "q.jsonl").write_text(json.dumps({"question": "What is shown here?", "image": "picture.png"}) + "\n")
    item = PredictDataset(folder / "q.jsonl", ImageProcessor(LAYOUT, 10**7)).item(0, 0)
    tokens = torch.from_numpy(ChatEncoder(tokenizer, "<image>").prompt(item.messages, item.counts).tokens)[None]
    return tokens, collate_views([item.encoder_input], LAYOUT)


def embedded(parts: ModelParts, tokens: Tensor, images: Any) -> Tensor:
    embeddings = parts.language_model.embed(tokens)
    embeddings[tokens == parts.placeholder] = parts.projector(parts.tower(images)).flatten(0, 1)
    return embeddings


@torch.no_grad()
def predicted(parts: ModelParts, tokenizer: ChatTokenizer, folder: Path) -> tuple[Tensor, Tensor, str]:
    """Tokens, pixels and answer of `predict`, for the card's question about folder/picture.png."""
    tokens, images = asked(tokenizer, folder)
    embeddings = embedded(parts, tokens, images)
    (answer,) = parts.language_model.generate(embeddings, tokens >= 0, 12, [tokenizer.end_of_turn])
    return tokens, parts.tower._inputs(images.pixels)["pixel_values"], tokenizer.decode(answer)
