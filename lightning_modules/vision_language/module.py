"""Trains a language model that reads images: the LightningModule of the vision-language family."""

from typing_extensions import override

from datamodules.vision_language.interface import VisionLanguageData
from engine.base_options import Unpack
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.evaluation.generative_evaluation import GenerativeEvaluation
from lightning_modules.multimodal.evaluation.outcome_metric import widest_float
from lightning_modules.multimodal.image_module import ImageTextModule
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModuleOptions
from lightning_modules.multimodal.vision.settings import VisionTowerSettings


class VisionLanguageModel(ImageTextModule[VisionLanguageData]):
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

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        blind: bool = False,
        max_new_tokens: int = 64,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(language_model, vision_tower, projector, blind, max_new_tokens, **training)

    @override
    def build_evaluation(self) -> GenerativeEvaluation:
        dtype = widest_float(self.trainer.strategy.root_device)
        return GenerativeEvaluation(self.data, dtype, self.max_new_tokens)
