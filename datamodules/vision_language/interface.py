"""Interfaces between the vision-language family's modules and their data."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from datamodules.multimodal.interface import GradedData, ImageChatData
from datamodules.vision_language.pretrained.encoded_chat import EncodedChat
from datamodules.vision_language.pretrained.processor import ModelProcessor


class ProcessorSource(NamedTuple):
    """The processor of a pretrained image-text model, as the module names it for its data (`processor_source`)."""

    path: str  # the model's name in the config
    folder: Path  # its files
    image_settings: Mapping[str, Any]  # settings of the image processor that differ from its files
    unpacked: str | None  # why its chats cannot be packed; None if they can


ChatProcessor = ModelProcessor
"""The processor of a pretrained model, as the data give it to the module."""


class VisionLanguageData(ImageChatData, GradedData, Protocol):
    """Chats about images whose answers are graded one by one. Implemented by VisionLanguageDataModule."""


class ProcessedChatData(GradedData, Protocol):
    """Chats that the processor of a pretrained model encodes. Implemented by VisionLanguageDataModule."""

    @property
    def model_processor(self) -> ModelProcessor:
        """The processor."""

    @property
    def black_image(self) -> EncodedChat:
        """A prompt with a black image."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interfaces here
    from datamodules.vision_language.datamodule import VisionLanguageDataModule

    def _provided(data: VisionLanguageDataModule) -> VisionLanguageData:
        return data

    def _processed(data: VisionLanguageDataModule) -> ProcessedChatData:
        return data
