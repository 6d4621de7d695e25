"""The vision-language family's LightningModule: a language model that sees."""

from typing import Any

from lightning_modules.multimodal.image_chat_module import ImageChatModule
from lightning_modules.multimodal.language_model import LanguageModelSettings
from lightning_modules.multimodal.module import Answer, MultimodalModule
from lightning_modules.multimodal.projector import ProjectorSettings
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings


class VisionLanguageModel(ImageChatModule, MultimodalModule):
    """Answers questions about images, any number of them in a chat.

    Args:
        language_model: the language model that reads the features.
        vision_tower: makes features of an image's patches.
        projector: from the tower's features to the language model's.
        training: see ImageModule, MultimodalModule and LockstepModule.
    """

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        **training: Any,
    ) -> None:
        super().__init__(language_model, vision_tower, projector, **training)

    def report(self, answers: list[Answer]) -> None:
        self.data.write_prediction_report(self.trainer.default_root_dir, answers)
