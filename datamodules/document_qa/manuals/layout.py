"""Lays out the pages of a manual. Lengths are in points (1/72 inch), from the page's top left."""

from typing import NamedTuple

import numpy as np

from datamodules.document_qa.manuals.devices import Chapter, Device, choose
from datamodules.document_qa.manuals.settings import PageKind
from datamodules.document_qa.manuals.templates import HEADINGS, PROSE
from datamodules.document_qa.types.document import ChunkKind

WIDTH, HEIGHT = 420.0, 595.0  # A5
MARGIN = 42.0
HEADING_SIZE, TEXT_SIZE = 15.0, 10.0
LINE = 15.0
CELL_WIDTH, CELL_HEIGHT = 80.0, 20.0
FIGURE = 240.0  # edge length of a drawing

_HEADING_TOP, _BODY_TOP = MARGIN, MARGIN + 54.0


class LayoutBox(NamedTuple):
    """An element of a page."""

    kind: ChunkKind
    left: float
    top: float
    right: float
    bottom: float
    lines: tuple[tuple[str, ...], ...]  # rows of a table; lines of a text, with one cell each; () for a figure
    size: float = TEXT_SIZE  # font size

    @property
    def text(self) -> str:
        """Text of the element's chunk: lines of a paragraph are joined, rows of a table are separate lines."""
        return ("\n" if self.kind == "table" else " ").join(" | ".join(line) for line in self.lines)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Box of the element's chunk, as fractions of the page."""
        return self.left / WIDTH, self.top / HEIGHT, self.right / WIDTH, self.bottom / HEIGHT


def lay_out(device: Device, random: np.random.Generator) -> list[tuple[Chapter, PageKind, tuple[LayoutBox, ...]]]:
    """Lay out all pages in their order: (chapter, kind of page, elements).

    Args:
        device: the device that the manual describes.
        random: draws the wording and order of the prose.
    """
    pages = {number: (chapter, kind) for chapter in device.chapters for kind, number in chapter.pages.items()}
    return [(*pages[number], _page(*pages[number], random)) for number in sorted(pages)]


def _page(chapter: Chapter, kind: PageKind, random: np.random.Generator) -> tuple[LayoutBox, ...]:
    heading = _text((HEADINGS[kind].format(title=chapter.title),), _HEADING_TOP, HEADING_SIZE)
    if kind == "text":
        return heading, _text(_prose(chapter, random), _BODY_TOP, TEXT_SIZE)
    if kind == "table":
        rows: tuple[tuple[str, ...], ...] = (("item", "name", *chapter.columns),)
        rows += tuple((f"part {part.number}", part.name, *part.values.values()) for part in chapter.parts)
        right, bottom = MARGIN + len(rows[0]) * CELL_WIDTH, _BODY_TOP + len(rows) * CELL_HEIGHT
        return heading, LayoutBox("table", MARGIN, _BODY_TOP, right, bottom, rows)
    return heading, LayoutBox("figure", MARGIN, _BODY_TOP, MARGIN + FIGURE, _BODY_TOP + FIGURE, ())


def _text(lines: tuple[str, ...], top: float, size: float) -> LayoutBox:
    lowest = top + len(lines) * LINE * size / TEXT_SIZE
    return LayoutBox(
        kind="text",
        left=MARGIN,
        top=top,
        right=WIDTH - MARGIN,
        bottom=lowest,
        lines=tuple((line,) for line in lines),
        size=size,
    )


def _prose(chapter: Chapter, random: np.random.Generator) -> tuple[str, ...]:
    """Return a sentence for each fact, in random order."""
    facts = [(attribute, part) for part in chapter.parts for attribute in PROSE]
    sentences = []
    for attribute, part in choose(random, facts, len(facts)):
        wording = choose(random, PROSE[attribute], 1)[0]
        sentences.append(wording.format(number=part.number, value=getattr(part, attribute)))
    return tuple(sentences)
