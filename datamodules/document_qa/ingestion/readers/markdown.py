"""Reads Markdown files: headings begin pages; paragraphs, pipe tables and images become text, tables and figures.

Blocks are recognized line by line. Markup of emphasis and links is removed. HTML counts as text.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.readers.markdown_render import MarkdownBlock, render_pages
from datamodules.document_qa.ingestion.readers.page_images import read_image
from datamodules.document_qa.ingestion.settings import IngestionSettings
from engine.data.errors import UnreadableDocumentError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES = 50_000_000
"""Largest size of a Markdown file."""

# Repetitions are bounded or cannot overlap, so the matching time is linear in the length of the text.
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)$")
_BREAK = re.compile(r"([-*_])( ?\1){2,}$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_RULER = re.compile(r"\|?[ \t]?:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*[ \t]*\|?$")  # between the header of a table and its rows
_IMAGE = re.compile(
    r"!\[([^\[\]\n]{0,1000})\]\([ ]?(?:<([^<>\n]{1,1000})>|([^\s()]{1,1000}))"  # ![name](path
    r"(?:[ ]{1,9}[\"'][^\"'\n]{0,300}[\"'])?[ ]?\)"  # "title")
)
_LINK = re.compile(r"\[([^\[\]\n]{0,1000})\]\([^()\n]{0,2000}\)")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]")
_EMPHASIS = re.compile(r"(\*\*|__|~~|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)|`+)")


def linked_images(path: Path) -> list[Path]:
    """Return the paths of all images of a file, in their order, whether they exist or not.

    Raises:
        UnreadableDocumentError: the file cannot be read, or an image is outside its folder.
    """
    images = (block.text for block in blocks(_read(path)) if block.kind == "figure")
    return list(dict.fromkeys(_inside(path, image) for image in images))


def read_markdown(path: Path, writer: PageWriter, settings: IngestionSettings) -> None:
    """Convert a Markdown file to pages; a missing image is a warning.

    Raises:
        UnreadableDocumentError: the file is not text, or an image cannot be read.
    """

    def image(name: str) -> "Image":
        return read_image(_inside(path, name), name, writer.note)

    def existing() -> Iterator[MarkdownBlock]:
        for block in blocks(_read(path)):
            if block.kind == "figure" and not _inside(path, block.text).exists():
                writer.note(f"image {block.text[:100]!r} does not exist: its figure is skipped")
            else:
                yield block

    for page in _pages(existing(), settings.heading_level):
        for picture, chunks in render_pages(page, image, settings):
            writer.add(picture, chunks)


def blocks(text: str) -> Iterator[MarkdownBlock]:
    """Parse a Markdown text into blocks, in their order."""
    lines = text.split("\n")
    row = 0
    paragraph: list[str] = []

    def finished() -> Iterator[MarkdownBlock]:
        if paragraph:
            yield from _paragraph(paragraph)
            paragraph.clear()

    while row < len(lines):
        line = lines[row]
        if fence := _FENCE.match(line):
            yield from finished()
            end = next((at for at in range(row + 1, len(lines)) if _closes(lines[at], fence[1])), len(lines))
            if code := "\n".join(lines[row + 1 : end]).strip("\n"):
                yield MarkdownBlock("code", code)
            row = end + 1
        elif heading := _HEADING.match(line):
            yield from finished()
            if title := _strip_markup(line.strip().strip("#")):
                yield MarkdownBlock("heading", title, len(heading[1]))
            row += 1
        # A line of = or - below a paragraph makes it a heading.
        elif paragraph and (under := _UNDERLINE.match(line.rstrip())):
            yield MarkdownBlock("heading", _strip_markup(" ".join(paragraph)), 1 if under[1][0] == "=" else 2)
            paragraph.clear()
            row += 1
        elif "|" in line and _is_ruler(lines[row + 1 : row + 2]):
            yield from finished()
            end = row + 2
            while end < len(lines) and "|" in lines[end]:
                end += 1
            yield _table_block([line, *lines[row + 2 : end]])
            row = end
        else:
            # An empty line ends a paragraph, and each item of a list is a paragraph of its own.
            if not line.strip() or _ITEM.match(line):
                yield from finished()
            if line.strip() and not _BREAK.match(line.strip()):
                paragraph.append(line)
            row += 1
    yield from finished()


def _pages(found: Iterable[MarkdownBlock], level: int) -> Iterator[list[MarkdownBlock]]:
    """Group blocks into pages. A page never consists of headings only, so a subheading follows its heading."""
    page: list[MarkdownBlock] = []
    for block in found:
        if block.kind == "heading" and block.level <= level and any(other.kind != "heading" for other in page):
            yield page
            page = []
        page.append(block)
    if page:
        yield page


def _paragraph(lines: list[str]) -> Iterator[MarkdownBlock]:
    """Split a paragraph: its images, each followed by its alternative text, then its words."""
    text = " ".join(line.strip() for line in lines)
    for name, bracketed, bare in _IMAGE.findall(text):
        yield MarkdownBlock("figure", unquote(bracketed or bare))
        if name.strip():
            yield MarkdownBlock("text", _strip_markup(name))
    if words := _strip_markup(_IMAGE.sub(" ", text)):
        yield MarkdownBlock("text", words)


def _table_block(lines: list[str]) -> MarkdownBlock:
    split = (re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines)
    rows = [[_strip_markup(cell).replace(" | ", "|") for cell in row] for row in split]
    # Every row gets as many cells as the header.
    columns = len(rows[0])
    return MarkdownBlock("table", "\n".join(" | ".join((row + [""] * columns)[:columns]) for row in rows))


def _strip_markup(text: str) -> str:
    """Remove the markup of emphasis, code and links."""
    text = _EMPHASIS.sub("", _LINK.sub(r"\1", text))
    return " ".join(re.sub(r"\\([^\w\s])", r"\1", text).split())


def _is_ruler(lines: list[str]) -> bool:
    return any("|" in line and _RULER.match(line.strip()) for line in lines)


def _closes(line: str, fence: str) -> bool:
    closing = line.strip()
    return len(closing) >= len(fence) and set(closing) == {fence[0]}


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UnreadableDocumentError(
                f"found {path.stat().st_size:,} bytes, a Markdown file may have {MAX_BYTES:,}"
            )
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableDocumentError(f"it is not UTF-8 ({error})") from error
    except OSError as error:
        raise UnreadableDocumentError(f"it cannot be read ({error.strerror})") from error


def _inside(path: Path, image: str) -> Path:
    """Return the path of an image, which must be inside the folder of the file, as files may be untrusted.

    Raises:
        UnreadableDocumentError: the image is outside the folder.
    """
    folder = path.parent.resolve()
    if "\0" in image or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", image):
        raise UnreadableDocumentError(f"it contains image {image[:100]!r}, expected a path within its folder")
    try:
        target = (folder / image).resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, a name too long
        raise UnreadableDocumentError(
            f"it contains image {image[:100]!r}, which cannot be resolved ({error})"
        ) from error
    if not target.is_relative_to(folder):
        raise UnreadableDocumentError(f"it contains image {image[:100]!r}, which is outside its folder")
    return target
