"""Encodes samples whose encoder input is decoded images, with the processor of a pretrained model."""

from torch import Tensor
from typing_extensions import override

from datamodules.multimodal.batch import Chat
from datamodules.multimodal.chat_dataset import ChatItem, SampleEncoder
from datamodules.vision_language.pretrained.prefix_encoder import PrefixEncoder
from datamodules.vision_language.pretrained.processor import ModelProcessor
from datamodules.vision_language.pretrained.template_encoder import TemplateEncoder
from engine.data.errors import BadSampleError


class ProcessedSampleEncoder(SampleEncoder):
    """Encodes samples by the processor's chat template, or as prefix and suffix if it has none.

    Args:
        model: the processor.
    """

    def __init__(self, model: ModelProcessor) -> None:
        self.pad = model.pad
        self._encoder = PrefixEncoder(model) if model.template is None else TemplateEncoder(model)

    @override
    def chat(self, item: ChatItem, name: str) -> tuple[Chat, dict[str, Tensor]]:
        try:
            return self._encoder.chat(item.messages, item.encoder_input, name)
        except ValueError as error:
            raise BadSampleError(str(error)) from error

    @override
    def prompt(self, item: ChatItem, name: str) -> tuple[Chat, dict[str, Tensor]]:
        try:
            return self._encoder.prompt(item.messages, item.encoder_input, name)
        except ValueError as error:
            raise BadSampleError(str(error)) from error
