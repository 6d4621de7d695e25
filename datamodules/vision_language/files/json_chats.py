"""Chats in JSON: one a line (JSONL), or all in one list (LLaVA), with images as files in a folder."""

from pathlib import Path
from typing import Any

from datamodules.multimodal.unusable import UnusableSample
from datamodules.vision_language.files.forms import CHAT_FIELDS, IMAGE_FIELDS, first_of, marked, messages_of
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.files.json_records import elements_of, lines_of, record
from datamodules.vision_language.image_chat import ImageChat


class JsonChats:
    """A ChatFile of records ``{"messages" | "conversations" | "texts": turns, "images" | "image": path or paths}``.

    Args:
        path: the file.
        lines: it has a record on each line; else it is one list of records.
        images: folder that the images' paths begin in; None for the file's own.

    Raises:
        ValueError: a file that should be one list is none.
        OSError: the file or the folder cannot be read.
    """

    blocks = None

    def __init__(self, path: str | Path, lines: bool, images: str | Path | None = None) -> None:
        self.path, self.lines = Path(path), lines
        self._extents = (lines_of if lines else elements_of)(self.path)
        self.identity = f"{self._extents.checksum:08x}"
        self._images = ImageFolder(self.path.parent if images is None else images)

    def __len__(self) -> int:
        return len(self._extents.starts)

    def name(self, row: int) -> str:
        numbers = self._extents.numbers
        number = row if numbers is None else int(numbers[row])
        # An editor counts lines from 1; elements of a list are counted from 0.
        return f"{self.path}, line {number + 1}" if self.lines else f"{self.path}, record {number}"

    def read(self, row: int) -> ImageChat:
        name = self.name(row)
        try:
            fields = record(self.path, int(self._extents.starts[row]), int(self._extents.ends[row]))
        except ValueError as error:
            raise UnusableSample(f"{name}: not JSON: {error}") from error
        field = first_of(CHAT_FIELDS, fields) if isinstance(fields, dict) else None
        if field is None:
            found = f"the keys {', '.join(fields) or 'none'}" if isinstance(fields, dict) else type(fields).__name__
            raise UnusableSample(f"{name}: expected an object with one of {', '.join(CHAT_FIELDS)}; found {found}")
        paths = _paths(fields)
        messages = marked(name, messages_of(name, fields[field]), len(paths))
        return ImageChat(name, messages, [self._images.read(name, path) for path in paths])


def _paths(fields: dict[str, Any]) -> list[Any]:
    """What the record names as images, in order."""
    field = first_of(IMAGE_FIELDS, fields)
    images = None if field is None else fields[field]
    images = [] if images is None else images if isinstance(images, list) else [images]
    return [image["path"] if isinstance(image, dict) and "path" in image else image for image in images]
