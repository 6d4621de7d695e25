"""Finds source files of documents: a PDF, a Markdown file, an image or a folder of page images, by file name."""

import hashlib
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

from engine.data.errors import UnreadableDocumentError

Kind = Literal["pdf", "markdown", "images"]

PDF_SUFFIXES = (".pdf",)
MARKDOWN_SUFFIXES = (".md", ".markdown")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".avif", ".tif", ".tiff")

_OTHER_IMAGES = (
    ".heic", ".heif", ".jxl", ".jp2", ".j2k", ".jpx", ".jpe", ".jfif", ".dib", ".ico", ".tga", ".ppm", ".pgm",
    ".pbm", ".pnm", ".pcx", ".psd", ".svg", ".eps", ".djvu", ".dng", ".raw", ".cr2", ".nef", ".arw", ".xcf",
)  # fmt: skip
"""Suffixes of images that are not read. In a folder of page images they are pages, which are refused by name."""

_CHUNK = 1 << 20  # bytes read at once
_BEGINNING = 1024  # bytes, within which a PDF has its mark
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II", b"MM")
"""First bytes of images; those of AVIF and WebP stand further on."""


class FileStamp(NamedTuple):
    """Identifies the state of a file without reading it."""

    path: str  # absolute
    size: int  # bytes
    modified: int  # time of the last write (mtime), nanoseconds; a program can set it
    changed: int = 0  # time of the last change (ctime), nanoseconds; also moved by a new hard link or other permissions


def document_kind(path: Path) -> Kind | None:
    """Return the kind of a document; None for other files, folders without images, and missing files."""
    if path.is_dir():
        return "images" if page_images(path) else None
    if not path.is_file() or path.suffix.lower() not in (*PDF_SUFFIXES, *MARKDOWN_SUFFIXES, *IMAGE_SUFFIXES):
        return None
    return _kind_of_suffix(path)


def find_documents(folder: Path) -> list[Path]:
    """Return all documents directly in a folder, sorted by name; hidden and other files are ignored.

    Raises:
        ValueError: it is not a folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected one with PDFs, Markdown files or folders of page images")
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return [path for path in entries if document_kind(path) is not None]


def page_images(path: Path) -> list[Path]:
    """Return an image, or the pages of a folder, sorted by the numbers in their names: 2.png before 10.png.

    Pages are all images, of whatever format, and files that are named as the images are: were a page that cannot be
    read skipped here, later pages would have the numbers of others. See `not_pages` for the other files.
    """
    if path.is_file():
        return [path]
    return sorted(_split_pages_from_rest(path)[0], key=_sort_key)


def not_pages(folder: Path) -> list[str]:
    """Return the names of what is in a folder of page images and is not a page, sorted; hidden files are ignored."""
    return sorted(path.name for path in _split_pages_from_rest(folder)[1])


def _split_pages_from_rest(folder: Path) -> tuple[list[Path], list[Path]]:
    """Divide the content of a folder, without hidden files, into pages and the rest."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    images = {path for path in visible if path.suffix.lower() in (*IMAGE_SUFFIXES, *_OTHER_IMAGES)}
    stems = {path.stem for path in images}
    numbered = {pattern for pattern in map(_pattern, stems) if "#" in pattern}
    pages = images | {
        path for path in visible
        if path not in images and path.is_file() and path.stem not in stems and _pattern(path.stem) in numbered
    }  # fmt: skip
    return list(pages), [path for path in visible if path not in pages]


def _pattern(stem: str) -> str:
    """Return a name with all numbers replaced: pages are numbered alike."""
    return re.sub(r"[0-9]+", "#", stem.casefold())


def _sort_key(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.findall(r"[0-9]+|[^0-9]+", path.name.casefold())
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts], path.name


def file_stamp(path: Path) -> FileStamp:
    """Return size and times of a file.

    Raises:
        OSError: they cannot be read.
    """
    try:
        stat = os.stat(path)
    except FileNotFoundError:  # an image of a Markdown file, which may be added later
        return FileStamp(str(path.absolute()), -1, 0)
    return FileStamp(str(path.absolute()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def digest(files: list[Path]) -> str:
    """Return a hexadecimal digest of the contents of files in this order.

    The kind of the document follows if its content looks like another: an image that is named `.pdf` cannot be read,
    and can once it is renamed, which does not change its content.

    Raises:
        UnreadableDocumentError: a file cannot be read.
    """
    total, beginning = hashlib.sha256(), b""
    for number, path in enumerate(files):
        content = hashlib.sha256()
        try:
            if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
                raise UnreadableDocumentError(f"{path.name} is not a file")
            with path.open("rb") as file:
                while part := file.read(_CHUNK):
                    content.update(part)
                    if not number and not beginning:
                        beginning = part[:_BEGINNING]
        except FileNotFoundError:
            content.update(b"not there")  # part of existing keys
        except OSError as error:
            raise UnreadableDocumentError(f"{path.name} cannot be read ({error.strerror})") from error
        total.update(content.digest())
    kind = _kind_of_suffix(files[0]) if files else "images"
    return total.hexdigest() if kind == _kind_of_content(beginning) else f"{total.hexdigest()} {kind}"


def _kind_of_suffix(path: Path) -> Kind:
    """Return the kind of a document's own file; a page image of a folder may have any suffix."""
    suffix = path.suffix.lower()
    return "pdf" if suffix in PDF_SUFFIXES else "markdown" if suffix in MARKDOWN_SUFFIXES else "images"


def _kind_of_content(beginning: bytes) -> Kind:
    """Return the kind that the first bytes of a file suggest."""
    if b"%PDF-" in beginning:
        return "pdf"
    is_image = beginning.startswith(_IMAGES) or beginning[4:8] == b"ftyp" or beginning[8:12] == b"WEBP"
    return "images" if is_image else "markdown"
