"""Reads chats in JSON: one per line (JSONL), or all in one list (LLaVA), with images as files in a folder."""

import logging
import re
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.vision_language.chat_file import ChatFile, ImageChat
from datamodules.vision_language.files.chat_formats import (
    CHAT_FIELDS,
    IMAGE_FIELDS,
    first_filled,
    insert_image_markers,
    misspelled_image_field,
    parse_messages,
    resolve_part_images,
)
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.files.json_index import index_elements, index_lines, read_record
from engine.data.errors import BadSampleError
from engine.io.json_records import check_regular_file, check_text_file, describe_line, describe_names, parse_json

log = logging.getLogger("lockstep")

_BEGINNING = 2**16  # bytes
_OTHER_LINE_ENDS = re.compile(rb"\}[ \t\r]*\r[ \t\r]*\{")
_INSPECTED = 8  # records whose fields are compared with the known ones


class JsonChats(ChatFile):
    """A ChatFile of records `{"messages" | "conversations" | "texts": turns, "images" | "image": path or paths}`.

    Args:
        path: the file.
        lines: whether each line is a record; otherwise the file is one list of records.
        images: base folder of the paths of images; None for the folder of the file.

    Raises:
        ValueError: the file should be a list, or an object per line, and is not.
        OSError: the file or the folder cannot be read.
    """

    blocks = None

    def __init__(self, path: str | Path, lines: bool, images: str | Path | None = None) -> None:
        self.path, self.lines = Path(path), lines
        self._check_form()
        self._extents = (index_lines if lines else index_elements)(self.path)
        self.identity = f"{self._extents.checksum:08x}"
        self._images = ImageFolder(self.path.parent if images is None else images)
        self._warn_of_misspelled_images()

    def _check_form(self) -> None:
        """Refuse a compressed file, and a list in place of lines, all of whose lines would be bad samples."""
        expected = "an object per line" if self.lines else "a list of records"
        check_regular_file(self.path, expected)
        with self.path.open("rb") as file:
            beginning = file.read(_BEGINNING)
        check_text_file(beginning, self.path, expected)
        lines = [line.lstrip() for line in beginning.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
        if not self.lines or not lines:
            return
        # A list that ends on the first of several lines is a bad row only, which is reported when it is read.
        if lines[0][:1] == b"[" and (len(lines) == 1 or not _is_json(lines[0])):
            raise ValueError(f"{self.path}: found a JSON list, expected {expected}; set format to llava for a list")
        if _OTHER_LINE_ENDS.search(beginning):  # all lines would be a single one, and a single bad sample
            raise ValueError(
                f"{self.path}: found lines that end with a carriage return alone, expected a line feed at the end of "
                "each; convert the line ends"
            )
        if not any(line[:1] in (b"{", b"[") for line in lines):
            raise ValueError(f"{self.path}: found {describe_line(lines[0])}, expected {expected}")

    def _warn_of_misspelled_images(self) -> None:
        """Warn if one of the first records has no images, and a field that is spelled similarly."""
        for row in range(min(len(self), _INSPECTED)):
            try:
                fields = read_record(self.path, self._extents, row)
            except ValueError:  # reported when the record is used
                continue
            if isinstance(fields, dict) and (field := misspelled_image_field(fields)) is not None:
                log.warning(
                    "%s: the field %s is not read; did you mean image?", self.name(row), describe_names([field])
                )
                return

    @override
    def __len__(self) -> int:
        return len(self._extents.starts)

    @override
    def name(self, row: int) -> str:
        numbers = self._extents.numbers
        number = row if numbers is None else int(numbers[row])
        # Editors number lines from 1; elements of a list are numbered from 0.
        return f"{self.path}, line {number + 1}" if self.lines else f"{self.path}, record {number}"

    @override
    def read(self, row: int) -> ImageChat:
        name = self.name(row)
        try:
            fields = read_record(self.path, self._extents, row)
        except ValueError as error:
            raise BadSampleError(f"{name}: not JSON: {error}") from error
        field = first_filled(CHAT_FIELDS, fields) if isinstance(fields, dict) else None
        if field is None:
            found = (
                f"the keys {describe_names(fields) or 'none'}" if isinstance(fields, dict) else type(fields).__name__
            )
            raise BadSampleError(f"{name}: expected an object with one of {', '.join(CHAT_FIELDS)}; found {found}")
        paths = resolve_part_images(name, fields[field], _paths(fields))
        messages = insert_image_markers(name, parse_messages(name, fields[field]), len(paths))
        return ImageChat(name, messages, [self._images.read(name, path) for path in paths])


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _paths(fields: dict[str, Any]) -> list[Any]:
    """Return the paths of the images of a record, in order."""
    field = first_filled(IMAGE_FIELDS, fields)
    images = None if field is None else fields[field]
    images = [] if images is None else images if isinstance(images, list) else [images]
    return [image["path"] if isinstance(image, dict) and "path" in image else image for image in images]
