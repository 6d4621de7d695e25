"""Answers questions about an image, with a blind baseline and an occlusion map."""

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from commands.answers.answer_blocks import AnswerBlock, Note, Picture, Pictures, Text, png_data_url
from commands.answers.answer_service import (
    AnswerService,
    Example,
    FieldChoice,
    InputField,
    UploadedFile,
    UserInputError,
    UserQuestion,
)
from commands.answers.families.occlusion_map import CELLS, describe_part, draw_occlusion_map, occlude
from datamodules.images.decoding import MAX_PIXELS
from datamodules.multimodal.batch import ChatEvaluationBatch
from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.images.image_processing import prepare_images
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_dataset import ChatImages, ImageChatDataset, ImageProcessor
from datamodules.vision_language.chat_file import MARKER, ImageChat
from datamodules.vision_language.datamodule import VisionLanguageDataModule
from datamodules.vision_language.files.chat_formats import insert_image_markers, parse_content
from datamodules.vision_language.rendered_scenes import RenderedScenes
from engine.data.errors import BadSampleError
from engine.data.samplers import MicroBatchRequest
from lightning_modules.multimodal.language.prefix_cache import PrefixCache
from lightning_modules.vision_language.module import VisionLanguageModel

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")
_EXAMPLES, _SHOWN_EDGE = 6, 480
_NO, _YES = FieldChoice("no", "no"), FieldChoice("yes", "yes")


class VisionLanguageAnswers(AnswerService):
    """Answers questions about a picture, over several turns.

    Args:
        model: model with its weights.
        data: data module of the run, set up for a validation, whose samples are the examples.
    """

    task = "Give a picture and ask about it; each question may follow the earlier ones."
    is_conversation = True

    shows_parts: ClassVar[bool] = True
    """Whether it can show which parts of a picture an answer depends on."""

    def __init__(self, model: VisionLanguageModel, data: VisionLanguageDataModule) -> None:
        self._model, self._data = model, data
        self._max_pixels: int = min(getattr(data, "max_pixels", MAX_PIXELS), MAX_PIXELS)
        self._processor = self._image_processor()
        self._system: str | None = getattr(data, "system", None)
        lean = "Each of 36 parts of the picture is covered in turn: 36 more passes of the model."
        self.fields = [
            InputField(
                "picture", "picture", "Picture", "A question can also be asked without one.", _SUFFIXES, camera=True
            ),
            InputField(
                "question", "text", "Question", "Enter asks; the next question follows this one.", is_persistent=False
            ),
            InputField("blind", "choice", "Also answer without the picture", choices=(_YES, _NO)),
            InputField("lean", "choice", "Show which part the answer leans on", lean, choices=(_NO, _YES)),
        ][: None if self.shows_parts else -1]

    def _image_processor(self) -> ChatImages:
        """Return the processor that makes a batch of pictures."""
        return ImageProcessor(self._data.image_layout, self._max_pixels, self._data.resize_mode)

    @override
    def examples(self) -> list[Example]:
        number = min(_EXAMPLES, len(self._data.validation_set))
        rows = [row for row in range(4 * number) if row < len(self._data.validation_set) and self._data.images(row)]
        return [self._example(row) for row in rows[:number]]

    def _example(self, row: int) -> Example:
        image, question = self._data.images(row)[0], self._data.question(row).splitlines()[0]
        file = UploadedFile(f"example {row + 1}.png", _png(image))
        return Example(question, {"picture": [file], "question": question}, _preview_url(image))

    @override
    def accept(self, field: InputField, file: UploadedFile) -> Iterator[AnswerBlock]:
        yield Pictures("given", "", [Picture(_preview_url(self._decode(file)), file.name)], large=True)

    @override
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        messages = [*self._messages(question)]
        images = [self._decode(file) for file in question.files.get("picture", ())]
        try:
            batch = self._batch([images], messages)
        except (BadSampleError, ValueError) as error:
            raise UserInputError(str(error)) from error
        text = ""
        for text in self._texts(batch):
            yield Text("answer", "", text, is_answer=True)
        # Again, so that an empty answer is shown, too.
        yield Text("answer", "", text, is_answer=True)
        if not images:
            return
        if question.texts.get("blind", "yes") == "yes":
            blind = self._model.features(self._model.modality.blinded(batch.encoder_input))
            (without,) = self._model.generate(batch.prompts, blind, self._model.max_new_tokens)
            yield Text("blind", "Without the picture", without or "(nothing)", faint=True)
        if question.texts.get("lean") == "yes" and text:
            yield Note("lean", "covering parts of the picture")
            yield self._leaning(images[0], messages, text)

    def _texts(self, batch: ChatEvaluationBatch) -> Iterator[str]:
        """Yield the answer to a batch with one question, longer with every token."""
        features = self._model.features(batch.encoder_input)
        yield from self._model.stream(batch.prompts, features, self._model.max_new_tokens)

    def _messages(self, question: UserQuestion) -> Iterator[Message]:
        if self._system is not None:
            yield Message(role="system", content=self._system)
        for turn in question.turns:
            yield Message(role="user", content=parse_content("the conversation", turn.question))
            yield Message(role="assistant", content=parse_content("the conversation", turn.answer))
        yield Message(role="user", content=parse_content("the question", question.text("question")))

    def _insert_markers(self, messages: Sequence[Message], images: int) -> list[Message]:
        """Return the messages with the picture where it was in training: before the first question, or after it."""
        data = self._data
        if images and isinstance(data, RenderedScenes) and data.scenes.tasks.image_position == "question_first":
            index = next(index for index, message in enumerate(messages) if message["role"] == "user")
            text = "\n".join([messages[index]["content"], *[MARKER] * images])
            messages = [*messages[:index], Message(role="user", content=text), *messages[index + 1 :]]
        return insert_image_markers("the question", messages, images)

    def _batch(self, pictures: Sequence[Sequence["Image"]], messages: Sequence[Message]) -> ChatEvaluationBatch:
        """Return a batch of the same chat about different pictures, on the device of the model."""
        marked = self._insert_markers(messages, len(pictures[0]))
        items = [self._item(marked, images) for images in pictures]
        source = _Given(self._processor, items)
        batch = self._data.questions(source, in_order=True)[MicroBatchRequest(0, np.arange(len(items)))]
        if batch.skipped:
            raise ValueError("the question cannot be used: it contains a special token of the model, or is too long")
        moved: ChatEvaluationBatch = self._model.transfer_batch_to_device(batch, self._model.device, 0)
        return moved

    def _item(self, messages: list[Message], images: Sequence["Image"]) -> ChatItem:
        """Return a chat about pictures as a sample."""
        return ChatItem(messages, *prepare_images(images, self._data.image_layout, self._data.resize_mode))

    def _leaning(self, image: "Image", messages: Sequence[Message], text: str) -> Pictures:
        scores = self._log_likelihoods([[image], *([part] for part in occlude(image))], messages, text)
        # A part without which the answer is more likely counts as 0.
        lost = (scores[0] - scores[1:]).clamp_min(0).view(CELLS, CELLS).cpu().numpy()
        with_picture, without = (f"{100 * float(score.exp()):.1f} %" for score in (scores[0], scores[1:].min()))
        if lost.max() > 0:
            note = "Red: parts without which the answer is less likely. "
            note += f"Its probability is {with_picture}, and {without} without the reddest part."
        else:
            note = f"The answer is no less likely without any of the parts; its probability is {with_picture}."
        shown = Picture(_preview_url(draw_occlusion_map(image, lost)), "", describe_part(lost))
        return Pictures("lean", "What the answer leans on", [shown], note, large=True)

    def _log_likelihoods(self, pictures: Sequence[Sequence["Image"]], messages: Sequence[Message], text: str) -> Tensor:
        """Return the log-likelihood [n] of an answer, given each of n pictures."""
        tokenizer, size = self._data.tokenizer, max(1, self._data.evaluation_batch_size)
        tokens = torch.tensor([[*tokenizer.encode(text), tokenizer.end_of_turn]], device=self._model.device)
        scores = []
        for start in range(0, len(pictures), size):
            batch = self._batch(pictures[start : start + size], messages)
            embeddings = self._model.embed(batch.prompts, self._model.features(batch.encoder_input))
            rows = torch.arange(len(embeddings), device=tokens.device)
            cache = PrefixCache(self._model.language_model, embeddings, batch.prompts.mask)
            lengths = torch.full_like(rows, tokens.shape[1])
            scores.append(cache.log_likelihoods(tokens.expand(len(rows), -1), lengths, rows))
        return torch.cat(scores)

    def _decode(self, file: UploadedFile) -> "Image":
        try:
            (image,) = self._processor.decode_images(ImageChat(file.name, [], [file.content]))
            return image
        except BadSampleError as error:
            raise UserInputError(str(error)) from error


class _Given(ImageChatDataset):
    """Samples that are in memory."""

    def __init__(self, processor: ChatImages, items: Sequence[ChatItem]) -> None:
        super().__init__(processor)
        self._items = items

    @override
    def __len__(self) -> int:
        return len(self._items)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return "the question"

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        return self._items[index]


def _preview_url(image: "Image") -> str:
    image = image.copy()
    image.thumbnail((_SHOWN_EDGE, _SHOWN_EDGE))
    return png_data_url(image, _SHOWN_EDGE // 2)


def _png(image: "Image") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
