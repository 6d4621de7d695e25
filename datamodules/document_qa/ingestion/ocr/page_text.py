"""Recognizes the text of a page as chunks in reading order."""

from typing import TYPE_CHECKING

from datamodules.document_qa.ingestion.ocr.recognizer import Ocr
from datamodules.document_qa.ingestion.ocr.recognizer_choice import load_recognizer
from datamodules.document_qa.ingestion.readers.bounding_boxes import Box, clip_to_page, reading_order
from datamodules.document_qa.types.document import Chunk

if TYPE_CHECKING:
    from PIL.Image import Image


def recognized_chunks(picture: "Image", page: int, kind: Ocr) -> list[Chunk]:
    """Return a chunk of text for each line of a page.

    Args:
        picture: image of the page.
        page: page number, from 1.
        kind: the program.

    Raises:
        RecognitionError: the program has failed.
    """
    width, height = picture.size
    lines = [line for line in load_recognizer(kind).lines(picture) if line.text.strip()]
    boxes: list[Box] = []
    for line in lines:
        left, top, right, bottom = line.box
        boxes.append(clip_to_page((left / width, top / height, right / width, bottom / height)))
    return [Chunk(page, "text", boxes[index], lines[index].text.strip()) for index in reading_order(boxes)]
