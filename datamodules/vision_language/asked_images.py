"""Questions that somebody asks about images of their own: what `predict` answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.multimodal.batch import Images
from datamodules.multimodal.chat import Message
from datamodules.multimodal.chat_sets import ChatItem
from datamodules.multimodal.images import Views, collate_views
from datamodules.multimodal.question_lines import read_questions
from datamodules.vision_language.files.forms import content_of, marked
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.image_chat import ImageChat, UnusableSample
from datamodules.vision_language.image_chat_samples import Cutting

_FIELDS = {"question", "image", "images", "id"}


class Asked(NamedTuple):
    """A line of the file."""

    where: str  # file and line
    record: dict[str, Any]  # as it was written
    messages: list[Message]
    images: list[str]  # paths


class AskedImages:
    """The lines of a JSONL file, in order.

    A line is an object with `question`, and `image`, a path, or `images`, a list of paths (absolute, or relative to
    the file), or neither. Where an image belongs in the question stands `<image>`; without any they come first. An
    `id`, a text or a number, is written beside the answer, as everything on the line is.

    Args:
        path: the file.
        cutting: of the images.
        system: system message; None for none.

    Raises:
        ValueError: names file and line of what cannot be read.
    """

    def __init__(self, path: Path, cutting: Cutting, system: str | None = None) -> None:
        self.path, self.cutting, self.system = path, cutting, system
        self.rows = [self._asked(where, record) for where, record in read_questions(path, _FIELDS)]

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.rows[index].where})"

    def item(self, epoch: int, index: int) -> ChatItem:
        return self.cutting.item(self._read(index))

    def pictures(self, index: int) -> list[Any]:
        """A question's images, as they are."""
        return self.cutting.pictures(self._read(index))

    def messages(self, index: int) -> list[Message]:
        return self.rows[index].messages

    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.cutting.layout)

    def _read(self, index: int) -> ImageChat:
        row = self.rows[index]
        # Whoever asks owns the file and may name any image; the folder takes care of what is no file or too large.
        paths = (self.path.parent / image for image in row.images)
        try:
            images = [ImageFolder(path.parent).read(row.where, path.name) for path in paths]
        except NotADirectoryError as error:
            raise UnusableSample(f"{row.where}: {error}") from error
        return ImageChat(row.where, row.messages, images)

    def _asked(self, where: str, record: dict[str, Any]) -> Asked:
        question = record["question"]
        if not isinstance(record.get("id"), str | int | float | None):
            raise ValueError(f"{where}: id is {type(record['id']).__name__}, expected a text or a number")
        for text in (question, str(record.get("id"))):
            content_of(where, text)
        if "image" in record and "images" in record:
            raise ValueError(f"{where}: expected either image, a path, or images, a list of paths")
        images = record.get("images", [record["image"]] if record.get("image") is not None else [])
        if not isinstance(images, list) or not all(isinstance(image, str) and image for image in images):
            raise ValueError(f"{where}: expected image, a path, or images, a list of paths; found {images!r}")
        messages = marked(where, [Message(role="user", content=question)], len(images))
        if self.system is not None:
            messages = [Message(role="system", content=self.system), *messages]
        return Asked(where, record, messages, images)
