"""The interface of the programs that recognise text, and the choice of one."""

from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from engine.system.extras import require_extras

if TYPE_CHECKING:
    from PIL.Image import Image

Ocr = Literal["none", "rapidocr", "tesseract"]


class Line(NamedTuple):
    """A line of text, or a cell of a table."""

    box: tuple[float, float, float, float]  # left, top, right, bottom in pixels
    text: str


class RecognitionError(RuntimeError):
    """The text of a page could not be recognised; the page has none."""


class Recognizer(Protocol):
    """A program that recognises text."""

    def lines(self, picture: "Image") -> list[Line]:
        """Return the lines of an image, in any order.

        Raises:
            RecognitionError: the program has failed, or takes too long.
        """
        ...


def require_recognizer(kind: Ocr) -> None:
    """Check that a program is installed, without loading its models.

    Raises:
        ValueError: it is not installed, with the command that installs it.
    """
    if kind == "rapidocr":
        require_extras({"ocr": "data.init_args.ingestion.ocr rapidocr"})
    elif kind == "tesseract":
        recognizer(kind)


@cache
def recognizer(kind: Ocr) -> Recognizer:
    """Return a program for this process; loading its models takes a second.

    Raises:
        ImportError: the package of rapidocr is not installed.
        ValueError: tesseract is not installed; or `kind` is `none`.
    """
    if kind == "rapidocr":
        from datamodules.document_qa.ingestion.ocr.rapidocr import RapidOcr

        return RapidOcr()
    if kind == "tesseract":
        from datamodules.document_qa.ingestion.ocr.tesseract import Tesseract

        return Tesseract()
    raise ValueError(f"there is no program for ingestion.ocr {kind}")
