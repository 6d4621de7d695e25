"""What stands where on the pages of a manual. Lengths in points (1/72 inch), from the page's top left."""

from typing import NamedTuple

import numpy as np

from datamodules.document_qa.document import ChunkKind
from datamodules.document_qa.manuals.devices import Chapter, Device, some
from datamodules.document_qa.manuals.settings import PageKind
from datamodules.document_qa.manuals.wordings import HEADINGS, PROSE

WIDTH, HEIGHT = 420.0, 595.0  # A5
MARGIN = 42.0
HEADING_SIZE, TEXT_SIZE = 15.0, 10.0
LINE = 15.0
CELL_WIDTH, CELL_HEIGHT = 80.0, 20.0
FIGURE = 240.0  # edge of a drawing

_HEADING_TOP, _BODY_TOP = MARGIN, MARGIN + 54.0


class Placed(NamedTuple):
    """Something on a page."""

    kind: ChunkKind
    left: float
    top: float
    right: float
    bottom: float
    lines: tuple[tuple[str, ...], ...]  # of a table its rows, of a text its lines of one cell each, of a figure none
    size: float = TEXT_SIZE  # of the letters

    @property
    def text(self) -> str:
        """As in a chunk: the lines of a paragraph are one, those of a table stay apart."""
        return ("\n" if self.kind == "table" else " ").join(" | ".join(line) for line in self.lines)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """As in a chunk."""
        return self.left / WIDTH, self.top / HEIGHT, self.right / WIDTH, self.bottom / HEIGHT


def lay_out(device: Device, random: np.random.Generator) -> list[tuple[Chapter, PageKind, tuple[Placed, ...]]]:
    """All pages in their order: the chapter, the kind, what is on it.

    Args:
        random: how the prose is worded and ordered.
    """
    pages = {number: (chapter, kind) for chapter in device.chapters for kind, number in chapter.pages.items()}
    return [(*pages[number], _page(*pages[number], random)) for number in sorted(pages)]


def _page(chapter: Chapter, kind: PageKind, random: np.random.Generator) -> tuple[Placed, ...]:
    heading = _text((HEADINGS[kind].format(title=chapter.title),), _HEADING_TOP, HEADING_SIZE)
    if kind == "text":
        return heading, _text(_prose(chapter, random), _BODY_TOP, TEXT_SIZE)
    if kind == "table":
        rows = (("item", "name", *chapter.columns),)
        rows += tuple((f"part {part.number}", part.name, *part.values.values()) for part in chapter.parts)
        right, bottom = MARGIN + len(rows[0]) * CELL_WIDTH, _BODY_TOP + len(rows) * CELL_HEIGHT
        return heading, Placed("table", MARGIN, _BODY_TOP, right, bottom, rows)
    return heading, Placed("figure", MARGIN, _BODY_TOP, MARGIN + FIGURE, _BODY_TOP + FIGURE, ())


def _text(lines: tuple[str, ...], top: float, size: float) -> Placed:
    lowest = top + len(lines) * LINE * size / TEXT_SIZE
    return Placed("text", MARGIN, top, WIDTH - MARGIN, lowest, tuple((line,) for line in lines), size)


def _prose(chapter: Chapter, random: np.random.Generator) -> tuple[str, ...]:
    """A sentence for each fact, in random order."""
    facts = [(attribute, part) for part in chapter.parts for attribute in PROSE]
    said = []
    for attribute, part in some(random, facts, len(facts)):
        wording = some(random, PROSE[attribute], 1)[0]
        said.append(wording.format(number=part.number, value=getattr(part, attribute)))
    return tuple(said)
