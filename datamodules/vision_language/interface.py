"""Interface between the vision-language family's module and its data."""

from typing import TYPE_CHECKING, Protocol

from datamodules.multimodal.interface import GradedData, ImageChatData


class VisionLanguageData(ImageChatData, GradedData, Protocol):
    """Chats about images whose answers are graded one by one. Implemented by VisionLanguageDataModule."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interface here
    from datamodules.vision_language.datamodule import VisionLanguageDataModule

    def _provided(data: VisionLanguageDataModule) -> VisionLanguageData:
        return data
