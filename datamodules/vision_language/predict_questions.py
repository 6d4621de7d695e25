"""Reads questions for `predict` about images of the user."""

from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.json_records import describe_value
from datamodules.multimodal.predict_questions import read_questions
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_dataset import ChatImages, ImageChatDataset
from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.files.chat_formats import insert_image_markers, parse_content
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.grading import OUTCOMES
from engine.data.errors import BadSampleError

_FIELDS = {"question", "image", "images", "id"}


class PredictRow(NamedTuple):
    """A line of the file."""

    where: str  # file and line
    record: dict[str, Any]  # the object on the line
    messages: list[Message]
    images: list[str]  # paths


class PredictDataset(ImageChatDataset):
    """Lines of a JSONL file, in order.

    A line is an object with `question`, and with `image`, a path, or `images`, a list of paths (absolute, or relative
    to the file), or neither. `<image>` marks the position of an image in the question; without markers the images come
    first. An `id`, a string or a number, is written beside the answer, like all other fields.

    Args:
        path: the file.
        processor: processor of the images.
        system: system message; None for none.

    Raises:
        ValueError: a line cannot be read; the message names file and line.
    """

    def __init__(self, path: Path, processor: ChatImages, system: str | None = None) -> None:
        super().__init__(processor)
        self.path, self.system = path, system
        self.rows = [self._parse_row(where, record) for where, record in read_questions(path, _FIELDS)]

    outcomes = OUTCOMES
    kinds: tuple[str, ...] = ()

    def kind(self, index: int) -> str:
        """Return the kind of a question: none."""
        return ""

    def grade(self, index: int, text: str) -> dict[str, tuple[float, float]]:
        """Return no grades, as a question has no reference."""
        return {}

    @override
    def __len__(self) -> int:
        return len(self.rows)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.rows[index].where})"

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        return self.processor.item(self._read(index))

    def decode_images(self, index: int) -> list[Any]:
        """Decode the images of a question, at their original size."""
        return self.processor.decode_images(self._read(index))

    def messages(self, index: int) -> list[Message]:
        """Return the texts of a question."""
        return self.rows[index].messages

    def _read(self, index: int) -> ImageChat:
        row = self.rows[index]
        # The user owns the file and may name any image, so each image's own folder is the base. ImageFolder rejects
        # paths that are not files and files that are too large.
        paths = (self.path.parent / image for image in row.images)
        try:
            images = [ImageFolder(path.parent).read(row.where, path.name) for path in paths]
        except NotADirectoryError as error:
            raise BadSampleError(f"{row.where}: {error}") from error
        return ImageChat(row.where, row.messages, images)

    def _parse_row(self, where: str, record: dict[str, Any]) -> PredictRow:
        question = record["question"]
        if not isinstance(record.get("id"), str | int | float | None):
            raise ValueError(f"{where}: id is {type(record['id']).__name__}, expected a text or a number")
        for text in (question, str(record.get("id"))):
            parse_content(where, text)
        if "image" in record and "images" in record:
            raise ValueError(f"{where}: expected either image, a path, or images, a list of paths")
        images = record.get("images", [record["image"]] if record.get("image") is not None else [])
        if not isinstance(images, list) or not all(isinstance(image, str) and image for image in images):
            raise ValueError(
                f"{where}: expected image, a path, or images, a list of paths; found {describe_value(images)}"
            )
        messages = insert_image_markers(where, [Message(role="user", content=question)], len(images))
        if self.system is not None:
            messages = [Message(role="system", content=self.system), *messages]
        return PredictRow(where, record, messages, images)
