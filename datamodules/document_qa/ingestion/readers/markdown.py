"""Reads Markdown files: headings begin pages; paragraphs, pipe tables and images become text, tables and figures.

The syntax is CommonMark with the tables and the strikethrough of GitHub. Markup is removed. HTML counts as text.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from typing_extensions import override

from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.readers.markdown_render import MarkdownBlock, render_pages
from datamodules.document_qa.ingestion.readers.page_images import read_image
from datamodules.document_qa.ingestion.settings import IngestionSettings
from engine.data.errors import UnreadableDocumentError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from PIL.Image import Image

MAX_BYTES = 10_000_000
"""Largest size of a Markdown file, some thousands of printed pages. Parsing takes hundreds of times the size."""

MAX_CELLS = 500_000
"""Largest number of cells of all tables of a file: about half a gigabyte. Missing cells of a row count."""

# Between the header of a table and its rows. Repetitions cannot overlap, so the matching time is linear.
_RULER = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")

# A header of keys that site generators read. CommonMark would take its last line for the underline of a heading.
_FRONT_MATTER = re.compile(
    r"---[ \t]*\n((?:[\w-]+:(?:[ \t].*)?\n|[ \t]+\S.*\n|-[ \t].*\n)+)(?:---|\.\.\.)[ \t]*(?:\n|$)"
)


def linked_images(path: Path) -> list[Path]:
    """Return the paths of all images inside the folder of a file, in their order, whether they exist or not.

    Raises:
        UnreadableDocumentError: the file cannot be read.
    """
    images = (block.text for block in blocks(_read(path)) if block.kind == "figure")
    return list(dict.fromkeys(target for image in images if (target := _inside(path, image)) is not None))


def read_markdown(path: Path, writer: PageWriter, settings: IngestionSettings) -> None:
    """Convert a Markdown file to pages. A warning names an image that is missing, remote or outside the folder.

    Raises:
        UnreadableDocumentError: the file is not text, or an image cannot be read.
    """

    def image(name: str) -> "Image":
        target = _inside(path, name)
        assert target is not None, "`existing` yields no other figures"
        return read_image(target, name, writer.note)

    def existing() -> Iterator[MarkdownBlock]:
        for block in blocks(_read(path)):
            target = _inside(path, block.text) if block.kind == "figure" else path
            if target is None:
                writer.note(f"image {block.text[:100]!r} is not a file of the folder: its figure is skipped")
            elif not target.exists():
                writer.note(f"image {block.text[:100]!r} does not exist: its figure is skipped")
            else:
                yield block

    for page in _pages(existing(), settings.heading_level):
        for picture, chunks in render_pages(page, image, settings):
            writer.add(picture, chunks)


def blocks(text: str) -> Iterator[MarkdownBlock]:
    """Parse a Markdown text into blocks, in their order; an image precedes the words of its paragraph or table."""
    if front := _FRONT_MATTER.match(text):
        yield MarkdownBlock("code", front[1].strip("\n"))
        text = text[front.end() :]
    marker, level = "", 0  # of the item of a list and of the heading that the next words belong to
    rows: list[list[str]] = []
    figures: list[MarkdownBlock] = []
    tokens, unread = _parse(text)
    for token in tokens:
        while unread and token.level == 0 and token.map and unread[0][0] < token.map[0]:
            yield MarkdownBlock("text", unread.pop(0)[1])
        if token.type == "list_item_open":
            marker = f"{token.info}{token.markup} "
        elif token.type == "list_item_close":
            marker = ""
        elif token.type in ("heading_open", "heading_close"):
            level = int(token.tag[1:]) if token.nesting > 0 else 0
        elif token.type == "fence" and (code := token.content.strip("\n")):
            yield MarkdownBlock("code", code)
            marker = ""
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "table_close":
            yield from figures
            yield MarkdownBlock("table", "\n".join(" | ".join(row) for row in rows))
            rows, figures = [], []
        elif token.type == "inline":
            words, found = _words(token.children or []), list(_figures(token.children or []))
            if rows:
                rows[-1].append(words.replace(" | ", "|"))
                figures += found
            elif level:
                # Images follow, so that they are on the page that the heading begins.
                yield from [MarkdownBlock("heading", words, level)] if words else []
                yield from found
            else:
                yield from found
                yield from [MarkdownBlock("text", marker + words)] if words else []
            marker = ""
    for _, line in unread:
        yield MarkdownBlock("text", line)


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


def _parse(text: str) -> tuple[list["Token"], list[tuple[int, str]]]:
    """Return the tokens of a text, and its definitions of links, `[1]: Smith`, that no link uses, by their lines."""
    environment: dict[str, Any] = {}
    tokens = _parser().parse(text, environment)
    inline = [child for token in tokens for child in token.children or []]
    used = {token.attrs.get("src", token.attrs.get("href")) for token in inline}
    lines = text.split("\n")
    definitions = environment.get("references", {}).values()
    return tokens, sorted(
        (each["map"][0], " ".join(" ".join(lines[slice(*each["map"])]).split()))
        for each in definitions
        if each["href"] not in used
    )


@lru_cache(1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # imported here: an optional dependency

    class Parser(MarkdownIt):
        # `_inside` checks the paths of images.

        @override
        def validateLink(self, url: str) -> bool:
            return True

        @override
        def normalizeLink(self, url: str) -> str:
            return url

    parser = Parser("commonmark", {"html": False, "maxNesting": 100}).enable(["table", "strikethrough"])
    # What is indented is rarely code: the texts, tables and images of admonitions (MkDocs) are.
    return parser.disable("code")


def _figures(children: Iterable["Token"]) -> Iterator[MarkdownBlock]:
    """Return the images of a line of text, each followed by its alternative text."""
    for token in children:
        if token.type == "image" and token.attrs["src"]:
            yield MarkdownBlock("figure", unquote(str(token.attrs["src"])))
            if name := _words(token.children or []):
                yield MarkdownBlock("text", name)


def _words(children: Iterable["Token"]) -> str:
    """Return a line of text without the markup of emphasis, code and links, and without images."""
    # A break between lines has no content, and neither has markup. The content of an image is its alternative text.
    text = "".join(
        " " if token.type.endswith(("break", "image")) else "\0" if token.type.startswith("em_") else token.content
        for token in children
    )
    # 2*3*4 mm is no emphasis. The parser has replaced the NULs of the file.
    text = re.sub(r"(?<=\d)\0(?=\d)", "*", text).replace("\0", "")
    return " ".join(text.split())


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UnreadableDocumentError(
                f"found {path.stat().st_size:,} bytes, a Markdown file may have {MAX_BYTES:,}"
            )
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableDocumentError(f"it is not UTF-8 ({error})") from error
    except OSError as error:
        raise UnreadableDocumentError(f"it cannot be read ({error.strerror})") from error
    if (cells := _count_cells(text)) > MAX_CELLS:
        raise UnreadableDocumentError(f"found tables of {cells:,} cells, a Markdown file may have {MAX_CELLS:,}")
    return text


def _count_cells(text: str) -> int:
    """Return the number of cells of all tables; rows have as many as their header, whatever they state."""
    cells = columns = 0
    for line in text.split("\n"):
        if not line.strip():
            columns = 0
        elif columns:
            cells += columns
        elif "|" in line and _RULER.fullmatch(line):
            columns = line.count("|") + 1
    return cells


def _inside(path: Path, image: str) -> Path | None:
    """Return the path of an image; None if it is not inside the folder of the file, as files may be untrusted."""
    folder = path.parent.resolve()
    # Remote images, such as badges, are never fetched.
    if "\0" in image or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", image):
        return None
    try:
        target = (folder / image).resolve()
        target.exists()
    except (OSError, RuntimeError):  # a loop of links, a name too long
        return None
    return target if target.is_relative_to(folder) else None
