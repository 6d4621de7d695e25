"""Documents without something, to see what an answer depends on."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from datamodules.document_qa.altered_document import AlteredDocument, AlteredPages
from datamodules.document_qa.document import Chunk, Document, Page

if TYPE_CHECKING:
    from PIL.Image import Image

Ablation = Literal["none", "figure", "table", "text", "shuffled_figure", "question_only"]
"""What a document is shown without: figures, tables, texts, its own figures (another document's stand in their place),
or everything."""

_PAPER = (255, 255, 255)

Box = tuple[int, int, int, int]


def ablated(document: Document, ablation: Ablation, another: Callable[[], Document]) -> Document:
    """A document as an ablation shows it.

    Args:
        another: gives the document whose figures stand in place of this one's.
    """
    if ablation == "none":
        return document
    if ablation == "question_only":
        return Without(document, lambda chunk: True)
    if ablation == "shuffled_figure":
        return OthersFigures(document, another())
    return Without(document, lambda chunk: chunk.kind == ablation)


class Without(AlteredDocument):
    """A document without some of its chunks; where they were, pictures are blank."""

    def __init__(self, document: Document, gone: Callable[[Chunk], bool]) -> None:
        super().__init__(document)
        self._gone = gone

    @property
    def pages(self) -> Sequence[Page]:
        return AlteredPages(self.document.pages, self._without)

    def picture(self, page: int) -> "Image":
        picture = self.document.picture(page).copy()
        for chunk in self._gone_of(page):
            picture.paste(_PAPER, on_page(chunk, *picture.size))
        return picture

    def figure(self, chunk: Chunk) -> "Image":
        inside = [gone for gone in self._gone_of(chunk.page) if _lies_in(gone, chunk)]
        figure = self.document.figure(chunk)
        if inside:  # a legend in a drawing is a text, too
            figure = figure.copy()
            for gone in inside:
                figure.paste(_PAPER, _within(gone, chunk, *figure.size))
        return figure

    def _without(self, page: Page) -> Page:
        return page._replace(chunks=tuple(chunk for chunk in page.chunks if not self._gone(chunk)))

    def _gone_of(self, page: int) -> Iterator[Chunk]:
        return filter(self._gone, self.document.pages[page - 1].chunks)


class OthersFigures(AlteredDocument):
    """A document with another one's figures in place of its own: the first for the first, and so on, around.

    Where the other has none, it has none either.
    """

    def __init__(self, document: Document, other: Document) -> None:
        super().__init__(document)
        self.other = other

    @property
    def pages(self) -> Sequence[Page]:
        return self._bare.pages if not self._others else self.document.pages

    def picture(self, page: int) -> "Image":
        if not self._others:
            return self._bare.picture(page)
        picture = self.document.picture(page).copy()
        for chunk in self.document.pages[page - 1].chunks:
            if chunk.kind == "figure":
                left, top, right, bottom = on_page(chunk, *picture.size)
                picture.paste(self.figure(chunk).resize((right - left, bottom - top)), (left, top))
        return picture

    def figure(self, chunk: Chunk) -> "Image":
        number = self._own[chunk]
        return self.other.figure(self._others[number % len(self._others)])

    @cached_property
    def _bare(self) -> Without:
        return Without(self.document, lambda chunk: chunk.kind == "figure")

    @cached_property
    def _own(self) -> dict[Chunk, int]:
        return {chunk: number for number, chunk in enumerate(_figures(self.document))}

    @cached_property
    def _others(self) -> list[Chunk]:
        return list(_figures(self.other))


def on_page(chunk: Chunk, width: int, height: int) -> Box:
    """A chunk's box in pixels of its page's picture, at least one pixel large."""
    left, top, right, bottom = chunk.box
    left, right = _pixels(left, right, width)
    top, bottom = _pixels(top, bottom, height)
    return left, top, right, bottom


def _figures(document: Document) -> Iterator[Chunk]:
    return (chunk for page in document.pages for chunk in page.chunks if chunk.kind == "figure")


def _lies_in(inner: Chunk, outer: Chunk) -> bool:
    """Whether the middle of a chunk lies in another one that is larger."""
    left, top, right, bottom = outer.box
    across, down = (inner.box[0] + inner.box[2]) / 2, (inner.box[1] + inner.box[3]) / 2
    return inner != outer and left <= across <= right and top <= down <= bottom and _area(inner) < _area(outer)


def _within(inner: Chunk, outer: Chunk, width: int, height: int) -> Box:
    """A chunk's box in pixels of the picture of a chunk that it lies in."""
    left, top, right, bottom = outer.box
    across, down = right - left, bottom - top
    box = [
        (inner.box[0] - left) / across, (inner.box[1] - top) / down,
        (inner.box[2] - left) / across, (inner.box[3] - top) / down,
    ]  # fmt: skip
    return on_page(inner._replace(box=tuple(min(max(edge, 0.0), 1.0) for edge in box)), width, height)


def _pixels(start: float, end: float, size: int) -> tuple[int, int]:
    first = min(max(int(start * size), 0), size - 1)
    return first, min(max(int(-(-end * size // 1)), first + 1), size)


def _area(chunk: Chunk) -> float:
    left, top, right, bottom = chunk.box
    return (right - left) * (bottom - top)
