"""Reads questions for `predict` about images of the user."""

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_dataset import ChatImages, ImageChatDataset
from datamodules.vision_language.chat_file import MARKER, ImageChat
from datamodules.vision_language.files.chat_formats import CHAT_FIELDS, insert_image_markers, resolve_part_images
from datamodules.vision_language.files.conversations import (
    conversation,
    open_turns,
    read_conversations,
    until_open_turn,
)
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.grading import OUTCOMES
from engine.data.errors import BadSampleError
from engine.io.json_records import describe_value


class PredictRow(NamedTuple):
    """A question or conversation of the file, checked before any image is read."""

    where: str  # file and line
    record: dict[str, Any]  # the object on the line
    messages: list[Message]
    images: list[str]  # paths


class PredictDataset(ImageChatDataset):
    """Lines of a JSONL file, or elements of the list in a `.json` file, in order.

    A line is an object with `question`, and with `image`, a path, or `images`, a list of paths (absolute, or relative
    to the file), or neither. `<image>` marks the position of an image in the question; without markers the images come
    first. An `id`, a string or a number, is written beside the answer, like all other fields.

    A conversation has a list of questions, which are answered one after another, or the turns of a chat in `messages`,
    `conversations` or `texts`, see `files.chat_formats`. Each question without an answer is answered.

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
        self.rows = [self._parse_row(where, record) for where, record in read_conversations(path)]
        self.answers: Mapping[int, Sequence[str]] = {}
        """Answers of the model after which conversations go on; see `next_turns`."""

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

    def turns(self, index: int) -> int:
        """Return the number of questions of a row that the model answers."""
        return len(open_turns(self.rows[index].messages))

    def next_turns(self, answers: Mapping[int, Sequence[str]]) -> "PredictDataset":
        """Return the same rows, of which some go on after answers of the model.

        Args:
            answers: {row: answers to its first questions}, fewer than `turns`.
        """
        # A shallow copy: the rows are shared, the answers are not.
        continued = copy(self)
        continued.answers = answers
        return continued

    def _read(self, index: int) -> ImageChat:
        row = self.rows[index]
        messages = until_open_turn(row.messages, self.answers.get(index, ()))
        # A conversation up to an open question needs only the images whose markers it has.
        seen = sum(message["content"].count(MARKER) for message in messages if message["role"] == "user")
        # The user owns the file and may name any image, so each image's own folder is the base. ImageFolder rejects
        # paths that are not files and files that are too large.
        paths = (self.path.parent / image for image in row.images[:seen])
        try:
            images = [ImageFolder(path.parent).read(row.where, path.name) for path in paths]
        except NotADirectoryError as error:
            raise BadSampleError(f"{row.where}: {error}") from error
        return ImageChat(row.where, messages, images)

    def _parse_row(self, where: str, record: dict[str, Any]) -> PredictRow:
        chat_messages = conversation(where, record)
        if not isinstance(record.get("id"), str | int | float | None):
            raise ValueError(f"{where}: id is {type(record['id']).__name__}, expected a text or a number")
        # A null is a missing key, as in `conversation`.
        image, images = record.get("image"), record.get("images")
        if image is not None and images is not None:
            raise ValueError(f"{where}: expected either image, a path, or images, a list of paths")
        images = images if images is not None else [] if image is None else [image]
        chat = next((record[field] for field in CHAT_FIELDS if record.get(field) is not None), None)
        if chat is not None and isinstance(images, list):
            images = resolve_part_images(where, chat, images)
        if not isinstance(images, list) or not all(isinstance(image, str) and image for image in images):
            raise ValueError(
                f"{where}: expected image, a path, or images, a list of paths; found {describe_value(images)}"
            )
        messages = insert_image_markers(where, chat_messages, len(images))
        if self.system is not None and messages[0]["role"] != "system":
            messages = [Message(role="system", content=self.system), *messages]
        return PredictRow(where, record, messages, images)
