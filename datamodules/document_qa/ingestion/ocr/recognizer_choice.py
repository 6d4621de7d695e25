"""Chooses the program that recognizes text."""

from functools import cache

from datamodules.document_qa.ingestion.ocr.rapidocr import RapidOCR
from datamodules.document_qa.ingestion.ocr.recognizer import Ocr, Recognizer
from datamodules.document_qa.ingestion.ocr.tesseract import Tesseract
from engine.system.extras import require_extras


def require_recognizer(kind: Ocr) -> None:
    """Check that a program is installed, without loading its models.

    Raises:
        ValueError: it is not installed, with the command that installs it.
    """
    if kind == "rapidocr":
        require_extras({"ocr": "data.init_args.ingestion.ocr rapidocr"})
    elif kind == "tesseract":
        # Its constructor finds the program and its languages; there is no model to load.
        load_recognizer(kind)


@cache
def load_recognizer(kind: Ocr) -> Recognizer:
    """Return a program for this process; loading its models takes a second.

    Raises:
        ImportError: the package of rapidocr is not installed.
        ValueError: tesseract is not installed; or `kind` is `none`.
    """
    if kind == "rapidocr":
        return RapidOCR()
    if kind == "tesseract":
        return Tesseract()
    raise ValueError(f"there is no program for ingestion.ocr {kind}")
