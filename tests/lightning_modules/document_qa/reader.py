"""Builds a small DocumentReader with its data, as a run builds them, without a run."""

from typing import Any

import torch

from datamodules.document_qa.prompt.context import ContextSettings
from lightning_modules.document_qa.reader_module import DocumentReader
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from tests.support.families.attached_trainer import attach
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER
from tests.support.families.tiny_documents import TinyDocuments


def built(stage: str = "fit", reader: dict[str, Any] | None = None, **data: Any) -> tuple[DocumentReader, Any]:
    """Every weight trains; the model writes four tokens at most."""
    torch.manual_seed(0)
    documents = TinyDocuments(batch_size=8, **{"size": 8, "context": ContextSettings(), **data})
    language_model = LanguageModelSettings(config=LANGUAGE_MODEL, trainable="full")
    vision_tower = VisionTowerSettings(config={**TOWER, "num_hidden_layers": 1}, trainable="full")
    module = DocumentReader(language_model, vision_tower, **{"max_new_tokens": 4, **(reader or {})})
    attach(module, documents, stage)
    return module, documents
