"""The text layer of a PDF's page as blocks: lines that follow each other closely, in letters of one size."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.boxes import (
    WHOLE_PAGE,
    Box,
    contains_centre,
    height,
    on_page,
    union,
)
from datamodules.document_qa.ingestion.pdf_objects import PageFrame

_APART = 0.9  # of a line's height: a larger gap begins a block
_OTHER_SIZE = 1.2  # a line that is so many times as high as the one before begins a block
_HYPHENS = ("\x02", "\ufffe")  # what PDFium puts where a word is split over two lines
_WIDE = re.compile("[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]")  # written without spaces


class Character(NamedTuple):
    """One of a page's text layer."""

    text: str
    box: Box | None  # None: a space or an end of line, which PDFium adds where they are seen


class Line(NamedTuple):
    """Characters between two ends of lines, at least one of them visible."""

    text: str
    box: Box


def page_characters(page: Any, frame: PageFrame) -> list[Character]:
    """All that lie on the page, in the order of the file."""
    import pypdfium2.raw as pdfium

    textpage, place = page.get_textpage(), pdfium.FS_RECTF()
    found: list[Character] = []
    try:
        for index in range(textpage.count_chars()):
            code = pdfium.FPDFText_GetUnicode(textpage, index)
            if not code or 0xD800 <= code <= 0xDFFF:
                continue  # half a character, which no file could hold
            text = chr(code) if code <= 0x10FFFF else "\ufffd"
            if text.isspace() or not pdfium.FPDFText_GetLooseCharBox(textpage, index, place):
                found.append(Character(text, None))
                continue
            box = frame.box(place.left, place.bottom, place.right, place.top)
            if contains_centre(WHOLE_PAGE, box):
                found.append(Character(text, box))
    finally:
        textpage.close()
    return found


def text_blocks(characters: Sequence[Character], left_out: Sequence[Box] = ()) -> list[tuple[Box, str]]:
    """Place and text of each block, in the order of the file; without what lies in some boxes."""
    blocks: list[list[Line]] = []
    for line in split_lines(_without(characters, left_out)):
        if blocks and _goes_on(blocks[-1], line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [(on_page(union(line.box for line in block)), joined([line.text for line in block])) for block in blocks]


def split_lines(characters: Iterable[Character]) -> Iterator[Line]:
    """Lines that have something in them; of several spaces one is left."""
    text: list[str] = []
    boxes: list[Box] = []
    for character in (*characters, Character("\n", None)):
        if character.text not in "\r\n":
            text.append(character.text)
            boxes += [] if character.box is None else [character.box]
            continue
        if words := " ".join("".join(text).split()):
            if boxes:
                yield Line(words, union(boxes))
        text, boxes = [], []


def joined(lines: Iterable[str]) -> str:
    """Lines as one text: a word that was split is whole again, Chinese gets no spaces."""
    text = ""
    for line in lines:
        if text.endswith(_HYPHENS):
            text = text[:-1] + line
        elif text and not (_WIDE.match(text[-1]) and _WIDE.match(line[0])):
            text = f"{text} {line}"
        else:
            text += line
    return "".join("-" if character in _HYPHENS else character for character in text)


def _without(characters: Iterable[Character], left_out: Sequence[Box]) -> Iterator[Character]:
    for character in characters:
        if character.box is not None and any(contains_centre(box, character.box) for box in left_out):
            # What comes after a table does not continue what came before.
            yield Character("\n", None)
        else:
            yield character


def _goes_on(block: Sequence[Line], line: Line) -> bool:
    last = block[-1].box
    low, high = sorted((height(last), height(line.box)))
    apart = line.box[1] - last[3]
    beside = line.box[0] > last[2] or line.box[2] < last[0]
    return high <= _OTHER_SIZE * low and -low < apart <= _APART * low and not beside
