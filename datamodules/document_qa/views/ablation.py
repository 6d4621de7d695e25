"""Ablates documents: removes some of their content, to measure what answers depend on."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from datamodules.document_qa.types.document import Chunk, Document, Page
from datamodules.document_qa.views.document_view import DocumentView, PagesView

if TYPE_CHECKING:
    from PIL.Image import Image

Ablation = Literal["none", "figure", "table", "text", "shuffled_figure", "question_only"]
"""The content that is removed: figures, tables or texts; all figures, which another document's figures replace; or all
content."""

_PAPER = (255, 255, 255)

Box = tuple[int, int, int, int]


def apply_ablation(document: Document, ablation: Ablation, another: Callable[[], Document]) -> Document:
    """Apply an ablation to a document.

    Args:
        document: the whole document.
        ablation: the content to remove.
        another: returns the document whose figures replace this document's figures.
    """
    if ablation == "none":
        return document
    if ablation == "question_only":
        return AblatedDocument(document, lambda chunk: True)
    if ablation == "shuffled_figure":
        return SwappedFigures(document, another())
    return AblatedDocument(document, lambda chunk: chunk.kind == ablation)


class AblatedDocument(DocumentView):
    """A document without some of its chunks; their places in images are blank."""

    def __init__(self, document: Document, is_removed: Callable[[Chunk], bool]) -> None:
        super().__init__(document)
        self._is_removed = is_removed

    @property
    @override
    def pages(self) -> Sequence[Page]:
        return PagesView(self.document.pages, self._without)

    @override
    def picture(self, page: int) -> "Image":
        picture = self.document.picture(page).copy()
        for chunk in self._removed_chunks(page):
            picture.paste(_PAPER, pixel_box(chunk, *picture.size))
        return picture

    @override
    def figure(self, chunk: Chunk) -> "Image":
        inside = [removed for removed in self._removed_chunks(chunk.page) if _lies_in(removed, chunk)]
        figure = self.document.figure(chunk)
        if inside:  # for example a legend within a drawing, which is a text chunk
            figure = figure.copy()
            for removed in inside:
                figure.paste(_PAPER, _within(removed, chunk, *figure.size))
        return figure

    def _without(self, page: Page) -> Page:
        return page._replace(chunks=tuple(chunk for chunk in page.chunks if not self._is_removed(chunk)))

    def _removed_chunks(self, page: int) -> Iterator[Chunk]:
        return filter(self._is_removed, self.document.pages[page - 1].chunks)


class SwappedFigures(DocumentView):
    """A document with another document's figures: figure i is replaced by figure i modulo their number.

    If the other document has no figures, the figures are removed.
    """

    def __init__(self, document: Document, other: Document) -> None:
        super().__init__(document)
        self.other = other

    @property
    @override
    def pages(self) -> Sequence[Page]:
        return self._bare.pages if not self._others else self.document.pages

    @override
    def picture(self, page: int) -> "Image":
        if not self._others:
            return self._bare.picture(page)
        picture = self.document.picture(page).copy()
        for chunk in self.document.pages[page - 1].chunks:
            if chunk.kind == "figure":
                left, top, right, bottom = pixel_box(chunk, *picture.size)
                picture.paste(self.figure(chunk).resize((right - left, bottom - top)), (left, top))
        return picture

    @override
    def figure(self, chunk: Chunk) -> "Image":
        number = self._number_of_figure[chunk]
        return self.other.figure(self._others[number % len(self._others)])

    @cached_property
    def _bare(self) -> AblatedDocument:
        return AblatedDocument(self.document, lambda chunk: chunk.kind == "figure")

    @cached_property
    def _number_of_figure(self) -> dict[Chunk, int]:
        return {chunk: number for number, chunk in enumerate(_figures(self.document))}

    @cached_property
    def _others(self) -> list[Chunk]:
        return list(_figures(self.other))


def pixel_box(chunk: Chunk, width: int, height: int) -> Box:
    """Return a chunk's box in pixels of the page image; at least one pixel in size."""
    left, top, right, bottom = chunk.box
    left, right = _pixels(left, right, width)
    top, bottom = _pixels(top, bottom, height)
    return left, top, right, bottom


def _figures(document: Document) -> Iterator[Chunk]:
    return (chunk for page in document.pages for chunk in page.chunks if chunk.kind == "figure")


def _lies_in(inner: Chunk, outer: Chunk) -> bool:
    """Return whether the center of a chunk is inside another, larger chunk."""
    left, top, right, bottom = outer.box
    across, down = (inner.box[0] + inner.box[2]) / 2, (inner.box[1] + inner.box[3]) / 2
    return inner != outer and left <= across <= right and top <= down <= bottom and _area(inner) < _area(outer)


def _within(inner: Chunk, outer: Chunk, width: int, height: int) -> Box:
    """Return a chunk's box in pixels of the image of the chunk that contains it."""
    left, top, right, bottom = outer.box
    across, down = right - left, bottom - top
    box = (
        _share((inner.box[0] - left) / across), _share((inner.box[1] - top) / down),
        _share((inner.box[2] - left) / across), _share((inner.box[3] - top) / down),
    )  # fmt: skip
    return pixel_box(inner._replace(box=box), width, height)


def _share(edge: float) -> float:
    return min(max(edge, 0.0), 1.0)


def _pixels(start: float, end: float, size: int) -> tuple[int, int]:
    # The start is rounded down and the end up, so that no pixel of removed content remains.
    first = min(max(int(start * size), 0), size - 1)
    return first, min(max(int(-(-end * size // 1)), first + 1), size)


def _area(chunk: Chunk) -> float:
    left, top, right, bottom = chunk.box
    return (right - left) * (bottom - top)
