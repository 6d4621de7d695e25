"""Trains a language model that reads images: the LightningModule of the vision-language family."""

from functools import cached_property
from pathlib import Path

from typing_extensions import override

from datamodules.multimodal.batch import ImageLayout
from datamodules.vision_language.interface import VisionLanguageData
from engine.base_options import Unpack
from engine.export.artifacts import ExportedModel
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.evaluation.generative_evaluation import GenerativeEvaluation, check_max_new_tokens
from lightning_modules.multimodal.evaluation.outcome_metric import widest_float
from lightning_modules.multimodal.export.image_text import export_image_text
from lightning_modules.multimodal.export.load_export import load_image_text
from lightning_modules.multimodal.export.parts import MODALITY
from lightning_modules.multimodal.image_features import ImageFeatures
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModuleOptions
from lightning_modules.multimodal.multimodal_module import MultimodalModule
from lightning_modules.multimodal.vision.settings import VisionTowerSettings


class VisionLanguageModel(MultimodalModule[VisionLanguageData]):
    """Answers questions about images, any number of them in a chat.

    Args:
        language_model: the language model that reads the features.
        vision_tower: computes features of an image's patches.
        projector: maps the tower's features to the language model's embeddings.
        blind: train and evaluate on black images, as a baseline.
        max_new_tokens: maximum length of an answer that an evaluation generates.
        training: see LanguageModule and LockstepModule; the parts in `learning_rates` are vision_tower, projector and
            language_model.
    """

    modality: ImageFeatures

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        blind: bool = False,
        max_new_tokens: int = 64,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(ImageFeatures(vision_tower, blind), language_model, projector=projector, **training)
        self.max_new_tokens = check_max_new_tokens(max_new_tokens)

    @cached_property
    def image_layout(self) -> ImageLayout:
        """Sizes that tower, projector and data share."""
        return self.modality.layout(self.projector_settings, self.data)

    @override
    def build_evaluation(self) -> GenerativeEvaluation:
        dtype = widest_float(self.trainer.strategy.root_device)
        return GenerativeEvaluation(self.data, dtype, self.max_new_tokens)

    @override
    def export(self, folder: Path, merge: bool) -> ExportedModel:
        """Write an image-text model of transformers if a class takes these parts, else the parts."""
        # Prefer transformers' class, which any program loads; the parts need this project.
        return export_image_text(self, folder, merge) or super().export(folder, merge)

    @override
    def load_export(self, folder: Path) -> None:
        if (folder / MODALITY).is_dir():
            super().load_export(folder)
        else:
            load_image_text(self, folder)
