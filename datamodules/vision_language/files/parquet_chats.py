"""Reads chats with images in Parquet files, in the formats of minimind-v, The Cauldron and FineVision."""

import logging
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.vision_language.chat_file import MARKER, ImageChat
from datamodules.vision_language.files.chat_formats import (
    CHAT_FIELDS,
    IMAGE_FIELDS,
    first_filled,
    insert_image_markers,
    parse_messages,
    resolve_part_images,
)
from datamodules.vision_language.files.parquet_columns import find_columns, unread_image_columns
from datamodules.vision_language.files.parquet_rows import ParquetRows
from engine.io.json_records import describe_names

log = logging.getLogger("lockstep")

_BLANK = 8  # maximum edge of minimind-v's placeholder image, in pixels


class ParquetChats(ParquetRows):
    """A ChatFile of Parquet files with chats.

    Args:
        path: a file, a folder, or a pattern; see ParquetRows.
        root: folder where `prepare` writes files whose row groups are too large.
        images: base folder of images that are named by path instead of being in the file.

    Raises:
        ValueError, OSError: see ParquetRows.
    """

    def __init__(self, path: str | Path, root: str | Path, images: str | Path | None = None) -> None:
        super().__init__(path, root, images, chat_columns)
        if not set(IMAGE_FIELDS) & set(self.columns) and (unread := unread_image_columns(self.paths[0])):
            log.warning(
                "%s: the column %s is not read, so the chats have no images; name it one of %s",
                self.paths[0], describe_names(unread), ", ".join(IMAGE_FIELDS),
            )  # fmt: skip

    @override
    def convert(self, name: str, fields: dict[str, Any]) -> ImageChat:
        images = self.row_images(name, fields, IMAGE_FIELDS)
        chat = first_filled(CHAT_FIELDS, fields)
        assert chat is not None  # find_columns requires a chat column in each file
        messages = parse_messages(name, fields[chat])
        if not images:
            images = [self._images.read(name, path) for path in resolve_part_images(name, fields[chat], [])]
        # Text-only chats of minimind-v have a placeholder image, for which the chat has no marker.
        if len(images) == 1 and not any(MARKER in message["content"] for message in messages) and _blank(images[0]):
            images = []
        return ImageChat(name, insert_image_markers(name, messages, len(images)), images)


def chat_columns(paths: Sequence[Path]) -> list[str]:
    """Return the columns of chats and images. Raises the errors of `find_columns`."""
    return [column for kind in find_columns(paths) for column in kind]


def _blank(image: bytes) -> bool:
    """Return whether an image is minimind-v's placeholder for a missing image: tiny and black."""
    from PIL import Image

    # A tiny image has few bytes, so most images are not opened.
    if len(image) > 2048:
        return False
    try:
        with Image.open(BytesIO(image), formats=("PNG", "JPEG")) as opened:
            if max(opened.size) > _BLANK:
                return False
            return opened.convert("RGB").getbbox() is None
    except (OSError, ValueError, SyntaxError):
        return False  # decoding reports the error
