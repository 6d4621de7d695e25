"""The vision-language family's LightningModule: a language model that sees."""

from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger

from lightning_modules.multimodal import answer_sheet
from lightning_modules.multimodal.answer_sheet import ShownAnswer
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
        shown_answers: samples of each validation that TensorBoard shows with their images and what was answered (val/answers).
        training: see ImageModule, MultimodalModule and LockstepModule.
    """  # noqa: E501

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        shown_answers: int = 8,
        **training: Any,
    ) -> None:
        super().__init__(language_model, vision_tower, projector, **training)
        if shown_answers < 0:
            raise ValueError(f"model.init_args.shown_answers is a number of samples, 0 for none; got {shown_answers}")
        self.shown_answers = shown_answers

    def show(self, answers: list[Answer]) -> None:
        """Into TensorBoard: one image of all the answers with their pictures, and the same as text."""
        data = self.data
        sheet = [
            ShownAnswer(
                f"{sample} {data.kind(sample)}".strip(), data.images(sample), data.question(sample),
                data.right_answer(sample), text, blind, data.is_right(sample, text),
            )
            for sample, text, blind in answers
        ]  # fmt: skip
        for logger in self.loggers:
            if sheet and isinstance(logger, TensorBoardLogger):
                step = self.global_step
                logger.experiment.add_image("val/answers", answer_sheet.draw(sheet), step, dataformats="HWC")
                logger.experiment.add_text("val/answers", answer_sheet.text(sheet), step)

    def report(self, answers: list[Answer]) -> None:
        self.data.write_prediction_report(self.trainer.default_root_dir, answers)
