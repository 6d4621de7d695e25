"""Declares the interface of programs that recognize text."""

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from PIL.Image import Image

Ocr = Literal["none", "rapidocr", "tesseract"]


class OcrLine(NamedTuple):
    """A line of text, or a cell of a table."""

    box: tuple[float, float, float, float]  # left, top, right, bottom in pixels
    text: str


class RecognitionError(RuntimeError):
    """The text of a page could not be recognized; the page has none."""


class Recognizer(Protocol):
    """OCR program that reads the lines of a page image; an instance is created once per worker process."""

    def lines(self, picture: "Image") -> list[OcrLine]:
        """Return the lines of an image, in any order.

        Raises:
            RecognitionError: the program has failed, or takes too long.
        """
        ...
