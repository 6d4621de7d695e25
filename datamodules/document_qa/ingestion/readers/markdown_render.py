"""Renders a page of a Markdown file: one column, black on white, in Pillow's default font.

The font has Latin, Greek and Cyrillic letters. Others are boxes in the image, but complete in the chunks' texts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.types.document import Chunk, ChunkKind

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

_WIDTH, _MARGIN = 8.27, 0.75  # inches; the height follows from the content
_SIZES = {"heading": 0.22, "text": 0.15, "code": 0.13, "table": 0.14}  # font sizes in inches
_LEADING, _APART = 1.3, 0.12  # line height in font sizes; inches between blocks
_CELL = 0.06  # inches between the lines of a table and its text
_LONGEST_WORD = 1000  # characters that are measured; more are wider than any page, and Pillow refuses a million


class MarkdownBlock(NamedTuple):
    """A block of a Markdown file, which becomes one chunk."""

    kind: Literal["heading", "text", "code", "table", "figure"]
    text: str  # of a figure, the path of its image as it is written; of a table, one row per line
    level: int = 0  # of a heading


def render_pages(
    blocks: "Sequence[MarkdownBlock]", image: "Callable[[str], Image]", settings: IngestionSettings
) -> "Iterator[tuple[Image, list[Chunk]]]":
    """Render blocks to pages: one, or more if the blocks exceed the largest page height.

    A text block that exceeds the height by itself is truncated in the image, but not in its chunk.

    Args:
        blocks: the blocks of a page.
        image: reads an image by its path in the file.
        settings: settings of the ingestion.

    Yields:
        The image of a page and its chunks.
    """
    # A page that is 1.5 times as high as wide fits `max_page_pixels`; longer content continues on another page.
    dpi = max(1, min(settings.dpi, int((settings.max_page_pixels / (_WIDTH * _WIDTH * 1.5)) ** 0.5)))
    width, margin, apart = (round(inches * dpi) for inches in (_WIDTH, _MARGIN, _APART))
    highest = settings.max_page_pixels // width
    placed: list[tuple[MarkdownBlock, Image, int]] = []
    top = margin
    for block in blocks:
        part = _drawn(block, width - 2 * margin, highest - 2 * margin, dpi, image)
        if placed and top + part.height + margin > highest:
            yield _compose_page(placed, width, margin)
            placed, top = [], margin
        placed.append((block, part, top))
        top += part.height + apart
    if placed:
        yield _compose_page(placed, width, margin)


def _compose_page(
    placed: "Sequence[tuple[MarkdownBlock, Image, int]]", width: int, margin: int
) -> "tuple[Image, list[Chunk]]":
    from PIL import Image

    height = max(placed[-1][2] + placed[-1][1].height + margin, width // 2)
    picture = Image.new("RGB", (width, height), "white")
    chunks = []
    for block, part, top in placed:
        picture.paste(part, (margin, top))
        kind: ChunkKind = block.kind if block.kind in ("table", "figure") else "text"
        box = margin / width, top / height, (margin + part.width) / width, (top + part.height) / height
        chunks.append(Chunk(0, kind, box, "" if kind == "figure" else block.text))
    return picture, chunks


def _drawn(block: "MarkdownBlock", width: int, height: int, dpi: int, image: "Callable[[str], Image]") -> "Image":
    if block.kind == "figure":
        picture = image(block.text)
        # Reduced to the page, never enlarged.
        scale = min(1.0, width / picture.width, height / picture.height)
        return picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    font = _font(_SIZES[block.kind] * dpi)
    if block.kind == "table":
        return _draw_table(
            [row.split(" | ") for row in block.text.split("\n")], font, width, height, round(_CELL * dpi)
        )
    wrapped = (part for line in block.text.split("\n") for part in _wrap(line, font, width))
    return _draw_lines(wrapped, font, width, height)


def _draw_lines(lines: Iterable[str], font: "FreeTypeFont", width: int, height: int) -> "Image":
    from PIL import Image, ImageDraw

    step = max(1, round(font.size * _LEADING))
    shown = list(islice(lines, max(1, height // step)))
    picture = Image.new("RGB", (width, step * max(1, len(shown))), "white")
    draw = ImageDraw.Draw(picture)
    for row, line in enumerate(shown):
        draw.text((0, row * step), line, fill="black", font=font)
    return picture


def _draw_table(rows: Sequence[Sequence[str]], font: "FreeTypeFont", width: int, height: int, gap: int) -> "Image":
    """Draw a table with columns of equal width and ruled cells."""
    from PIL import Image, ImageDraw

    wide = max(1, (width - 1) // max(map(len, rows)))
    picture = Image.new("RGB", (width, height), "white")
    draw, top = ImageDraw.Draw(picture), 0
    for row in rows:
        inside = max(1, wide - 2 * gap)
        parts = [_draw_lines(_wrap(cell, font, inside), font, inside, height - 2 * gap - 1) for cell in row]
        high = max(part.height for part in parts) + 2 * gap
        if top and top + high >= height:
            break
        for column, part in enumerate(parts):
            picture.paste(part, (column * wide + gap, top + gap))
            draw.rectangle((column * wide, top, (column + 1) * wide, top + high), outline="black")
        top += high
    return picture.crop((0, 0, width, min(height, top + 1)))


def _wrap(text: str, font: "FreeTypeFont", width: int) -> Iterator[str]:
    """Wrap text between words, or between letters where a word exceeds the line."""
    line, used, space = "", 0.0, _length(font, " ")
    for word in text.replace("\t", "    ").split(" "):
        if line and used + space + _length(font, word) <= width:
            line, used = f"{line} {word}", used + space + _length(font, word)
            continue
        if line:
            yield line
        line, used = "", 0.0
        for part in [word] if len(word) < _LONGEST_WORD and _length(font, word) <= width else word:
            if line and used + _length(font, part) > width:
                yield line
                line, used = "", 0.0
            line, used = line + part, used + _length(font, part)
    yield line


@lru_cache(maxsize=16384)
def _length(font: "FreeTypeFont", word: str) -> float:
    """Return the width of a word, in pixels."""
    return font.getlength(word)


@lru_cache(maxsize=16)
def _font(size: float) -> "FreeTypeFont":
    from PIL import ImageFont

    font = ImageFont.load_default(max(6, round(size)))
    assert isinstance(font, ImageFont.FreeTypeFont)  # load_default returns a FreeTypeFont if a size is given
    return font
