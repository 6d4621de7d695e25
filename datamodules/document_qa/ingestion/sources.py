"""What can be a document: a PDF, a Markdown file, an image, a folder of page images. Told by its name."""

import hashlib
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

from datamodules.document_qa.ingestion.broken import BrokenDocument

Kind = Literal["pdf", "markdown", "images"]

PDF_SUFFIXES = (".pdf",)
MARKDOWN_SUFFIXES = (".md", ".markdown")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")

_CHUNK = 1 << 20  # bytes read at once


class Stamp(NamedTuple):
    """What tells, without reading it, that a file is still the same."""

    path: str  # absolute
    size: int  # bytes
    modified: int  # nanoseconds


def kind_of(path: Path) -> Kind | None:
    """None of what is no document: another kind of file, a folder without images, nothing at all."""
    if path.is_dir():
        return "images" if page_images(path) else None
    suffix = path.suffix.lower()
    if not path.is_file():
        return None
    if suffix in PDF_SUFFIXES:
        return "pdf"
    return "markdown" if suffix in MARKDOWN_SUFFIXES else "images" if suffix in IMAGE_SUFFIXES else None


def find_documents(folder: Path) -> list[Path]:
    """The documents directly in a folder, by name; what is hidden or none of them is passed over.

    Raises:
        ValueError: it is no folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected one of documents (PDF, Markdown, folders of page images)")
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return [path for path in found if kind_of(path) is not None]


def page_images(path: Path) -> list[Path]:
    """The images of a folder, or the one image, in the order of the numbers in their names: 2.png before 10.png."""
    if path.is_file():
        return [path]
    found = [
        one for one in path.iterdir()
        if one.suffix.lower() in IMAGE_SUFFIXES and not one.name.startswith(".") and one.is_file()
    ]  # fmt: skip
    return sorted(found, key=_by_number)


def _by_number(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.findall(r"[0-9]+|[^0-9]+", path.name.casefold())
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts], path.name


def stamp(path: Path) -> Stamp:
    """
    Raises:
        OSError: it cannot be looked at.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:  # a Markdown file's image, which may come later
        return Stamp(str(path.absolute()), -1, 0)
    return Stamp(str(path.absolute()), found.st_size, found.st_mtime_ns)


def digest(files: list[Path]) -> str:
    """Of the contents of files in this order, in hexadecimal digits.

    Raises:
        BrokenDocument: one cannot be read.
    """
    whole = hashlib.sha256()
    for path in files:
        one = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while part := file.read(_CHUNK):
                    one.update(part)
        except FileNotFoundError:
            one.update(b"not there")
        except OSError as error:
            raise BrokenDocument(f"{path.name} cannot be read ({error.strerror})") from error
        whole.update(one.digest())
    return whole.hexdigest()
