"""Extracts the text layer of a PDF page as blocks: successive lines with small gaps and the same font size."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.readers.bounding_boxes import (
    WHOLE_PAGE,
    Box,
    clip_to_page,
    contains_center,
    height,
    union,
)
from datamodules.document_qa.ingestion.readers.pdf_objects import PageFrame

_APART = 0.9  # in line heights: a larger gap begins a new block
_OTHER_SIZE = 1.2  # a larger ratio of line heights begins a new block
_HYPHENS = ("\x02", "\ufffe")  # PDFium's characters for a hyphen at the end of a line
_WIDE = re.compile("[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]")  # scripts without spaces


class Character(NamedTuple):
    """A character of a page's text layer."""

    text: str
    box: Box | None  # None for white space, which PDFium inserts


class PdfLine(NamedTuple):
    """A line with at least one visible character."""

    text: str
    box: Box


def page_characters(page: Any, frame: PageFrame) -> list[Character]:
    """Return all characters on the page, in the order of the file."""
    import pypdfium2.raw as pdfium

    textpage, rectangle = page.get_textpage(), pdfium.FS_RECTF()
    characters: list[Character] = []
    try:
        for index in range(textpage.count_chars()):
            code = pdfium.FPDFText_GetUnicode(textpage, index)
            if not code or 0xD800 <= code <= 0xDFFF:
                continue  # an unpaired surrogate, which UTF-8 cannot encode
            text = chr(code) if code <= 0x10FFFF else "\ufffd"
            if text.isspace() or not pdfium.FPDFText_GetLooseCharBox(textpage, index, rectangle):
                characters.append(Character(text, None))
                continue
            box = frame.box(rectangle.left, rectangle.bottom, rectangle.right, rectangle.top)
            if contains_center(WHOLE_PAGE, box):
                characters.append(Character(text, box))
    finally:
        textpage.close()
    return characters


def text_blocks(characters: Sequence[Character], excluded: Sequence[Box] = ()) -> list[tuple[Box, str]]:
    """Return (box, text) of each block, in the order of the file, without the characters in excluded boxes."""
    blocks: list[list[PdfLine]] = []
    for line in split_lines(_without(characters, excluded)):
        if blocks and _goes_on(blocks[-1], line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [
        (clip_to_page(union(line.box for line in block)), join_lines([line.text for line in block])) for block in blocks
    ]


def split_lines(characters: Iterable[Character]) -> Iterator[PdfLine]:
    """Yield non-empty lines with normalized spaces."""
    text: list[str] = []
    boxes: list[Box] = []
    for character in (*characters, Character("\n", None)):
        if character.text not in "\r\n":
            text.append(character.text)
            boxes += [] if character.box is None else [character.box]
            continue
        if boxes and (words := " ".join("".join(text).split())):
            yield PdfLine(words, union(boxes))
        text, boxes = [], []


def join_lines(lines: Iterable[str]) -> str:
    """Join lines to one text: hyphenated words are joined, Chinese gets no spaces."""
    text = ""
    for line in lines:
        if text.endswith(_HYPHENS):
            text = text[:-1] + line
        elif text and not (_WIDE.match(text[-1]) and _WIDE.match(line[0])):
            text = f"{text} {line}"
        else:
            text += line
    return "".join("-" if character in _HYPHENS else character for character in text)


def _without(characters: Iterable[Character], excluded: Sequence[Box]) -> Iterator[Character]:
    for character in characters:
        if character.box is not None and any(contains_center(box, character.box) for box in excluded):
            # A block does not continue across a table.
            yield Character("\n", None)
        else:
            yield character


def _goes_on(block: Sequence[PdfLine], line: PdfLine) -> bool:
    last = block[-1].box
    low, high = sorted((height(last), height(line.box)))
    apart = line.box[1] - last[3]
    beside = line.box[0] > last[2] or line.box[2] < last[0]
    return high <= _OTHER_SIZE * low and -low < apart <= _APART * low and not beside
