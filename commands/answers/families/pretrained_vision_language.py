"""Answers with a fine-tuned image-text model of transformers, whose own processor reads picture and conversation."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from commands.answers.families.vision_language import VisionLanguageAnswers
from datamodules.multimodal.batch import ChatEvaluationBatch
from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_dataset import ChatImages
from datamodules.vision_language.datamodule import VisionLanguageDataModule
from datamodules.vision_language.pretrained.native_images import NativeImages
from lightning_modules.vision_language.pretrained.module import PretrainedVisionLanguageModel

if TYPE_CHECKING:
    from PIL.Image import Image


def create(model: PretrainedVisionLanguageModel, data: VisionLanguageDataModule) -> "PretrainedAnswers":
    """Return the answers of a fine-tuned image-text model."""
    return PretrainedAnswers(model, data)  # type: ignore[arg-type]  # what it lacks is used by overridden methods alone


class PretrainedAnswers(VisionLanguageAnswers):
    """Answers questions about a picture, over several turns; an answer comes at once. See VisionLanguageAnswers."""

    shows_parts = False

    @override
    def _image_processor(self) -> ChatImages:
        return NativeImages(self._max_pixels)

    @override
    def _item(self, messages: list[Message], images: Sequence["Image"]) -> ChatItem:
        return ChatItem(messages, (), list(images))

    @override
    def _texts(self, batch: ChatEvaluationBatch) -> Iterator[str]:
        yield from self._model.generate(
            batch.prompts, self._model.features(batch.encoder_input), self._model.max_new_tokens
        )
