"""The text layer of a PDF's page as blocks: lines that follow each other closely, in letters of one size."""

import ctypes
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.boxes import Box, contains_centre, height, on_page, union
from datamodules.document_qa.ingestion.pdf_objects import PageFrame

_APART = 0.9  # of a line's height: a larger gap begins a block
_OTHER_SIZE = 1.2  # a line that is so many times as high as the one before begins a block
_HYPHENS = ("\x02", "\ufffe")  # what PDFium puts where a word is split over two lines
_WIDE = re.compile("[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]")  # written without spaces


class _Line(NamedTuple):
    text: str
    box: Box


def text_blocks(page: Any, frame: PageFrame, left_out: Sequence[Box] = ()) -> list[tuple[Box, str]]:
    """Place and text of each block, in the order of the file; without what lies in some boxes, and off the page."""
    textpage = page.get_textpage()
    try:
        blocks: list[list[_Line]] = []
        for line in _lines(textpage, frame, left_out):
            if blocks and _goes_on(blocks[-1], line):
                blocks[-1].append(line)
            else:
                blocks.append([line])
    finally:
        textpage.close()
    return [(on_page(union(line.box for line in block)), _joined(block)) for block in blocks]


def _lines(textpage: Any, frame: PageFrame, left_out: Sequence[Box]) -> Iterator[_Line]:
    text: list[str] = []
    boxes: list[Box] = []

    def line() -> Iterator[_Line]:
        words = " ".join("".join(text).split())
        if words and boxes:
            yield _Line(words, union(boxes))
        text.clear()
        boxes.clear()

    for character, box in _characters(textpage, frame):
        if character in "\r\n":
            yield from line()
        elif box is None:
            text.append(character)
        elif any(contains_centre(one, box) for one in left_out) or not contains_centre((0.0, 0.0, 1.0, 1.0), box):
            yield from line()  # what comes after a table does not continue what came before
        else:
            text.append(character)
            boxes.append(box)
    yield from line()


def _characters(textpage: Any, frame: PageFrame) -> Iterator[tuple[str, Box | None]]:
    """Each character with its place; None for spaces and ends of lines, which PDFium adds where they are seen."""
    import pypdfium2.raw as pdfium

    place = pdfium.FS_RECTF()
    for index in range(textpage.count_chars()):
        code = pdfium.FPDFText_GetUnicode(textpage, index)
        if not code:
            continue
        character = chr(code) if code <= 0x10FFFF else "\ufffd"
        if character.isspace() or not pdfium.FPDFText_GetLooseCharBox(textpage, index, ctypes.byref(place)):
            yield character, None
        else:
            yield character, frame.box(place.left, place.bottom, place.right, place.top)


def _goes_on(block: Sequence[_Line], line: _Line) -> bool:
    last = block[-1].box
    high, higher = sorted((height(last), height(line.box)))
    apart = line.box[1] - last[3]
    beside = line.box[0] > last[2] or line.box[2] < last[0]
    return higher <= _OTHER_SIZE * high and -high < apart <= _APART * high and not beside


def _joined(block: Sequence[_Line]) -> str:
    """Lines as one text: a word that was split is whole again, Chinese gets no spaces."""
    text = ""
    for line in block:
        if text.endswith(_HYPHENS):
            text = text[:-1] + line.text
        elif text and not (_WIDE.match(text[-1]) and _WIDE.match(line.text[0])):
            text = f"{text} {line.text}"
        else:
            text += line.text
    return "".join("-" if character in _HYPHENS else character for character in text)
