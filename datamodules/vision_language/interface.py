"""Defines the interfaces between the vision-language family's modules and their data."""

from typing import TYPE_CHECKING, Protocol

from datamodules.multimodal.interface import GradedData, ImageChatData
from datamodules.vision_language.pretrained.encoded_chat import EncodedChat
from datamodules.vision_language.pretrained.processor import ModelProcessor as ModelProcessor  # for the module
from datamodules.vision_language.pretrained.processor import ProcessorSource as ProcessorSource


class VisionLanguageData(ImageChatData, GradedData, Protocol):
    """Chats about images whose answers are graded one by one. Implemented by VisionLanguageDataModule."""


class ProcessedChatData(GradedData, Protocol):
    """Chats that the processor of a pretrained model encodes. Implemented by VisionLanguageDataModule."""

    @property
    def model_processor(self) -> ModelProcessor:
        """The processor, which encodes chats and their images."""

    @property
    def black_image(self) -> EncodedChat:
        """A prompt with a black image, for what the model answers without seeing."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interfaces here
    from datamodules.vision_language.datamodule import VisionLanguageDataModule

    def _provided(data: VisionLanguageDataModule) -> VisionLanguageData:
        return data

    def _processed(data: VisionLanguageDataModule) -> ProcessedChatData:
        return data
