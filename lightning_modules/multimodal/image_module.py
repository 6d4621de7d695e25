"""Trains a language model that reads images: the bases of such LightningModules."""

from functools import cached_property
from pathlib import Path

from typing_extensions import override

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.interface import ImageChatDataT, ImageDataT
from engine.base_options import Unpack
from engine.export.artifacts import ExportedModel
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.evaluation.generative_evaluation import check_max_new_tokens
from lightning_modules.multimodal.export.image_text_export import export_image_text
from lightning_modules.multimodal.export.load_export import load_image_text
from lightning_modules.multimodal.export.parts_export import MODALITY
from lightning_modules.multimodal.image_features import ImageFeatures
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModuleOptions
from lightning_modules.multimodal.multimodal_module import MultimodalModule
from lightning_modules.multimodal.vision.settings import VisionTowerSettings


class ImageModule(MultimodalModule[ImageDataT]):
    """A language model that reads images.

    Args:
        language_model: the language model that reads the features.
        vision_tower: computes features of an image's patches.
        projector: maps the tower's features to the language model's embeddings.
        blind: train and evaluate on black images, as a baseline.
        training: see LanguageModule and LockstepModule.
    """

    modality: ImageFeatures

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        blind: bool = False,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(ImageFeatures(vision_tower, blind), language_model, projector=projector, **training)

    @cached_property
    def image_layout(self) -> ImageLayout:
        """Sizes that tower, projector and data share."""
        return self.modality.layout(self.projector_settings, self.data)


class ImageTextModule(ImageModule[ImageChatDataT]):
    """A language model that reads images and answers in text. It may be exported as a class of transformers.

    Args:
        language_model: see ImageModule.
        vision_tower: see ImageModule.
        projector: see ImageModule.
        blind: see ImageModule.
        max_new_tokens: maximum length of an answer that an evaluation generates.
        training: see LanguageModule and LockstepModule.
    """

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        blind: bool = False,
        max_new_tokens: int = 64,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(language_model, vision_tower, projector, blind, **training)
        self.max_new_tokens = check_max_new_tokens(max_new_tokens)

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
