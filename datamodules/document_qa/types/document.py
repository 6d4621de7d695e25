"""Defines a document: pages with chunks of text, tables and figures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

if TYPE_CHECKING:
    from PIL.Image import Image

ChunkKind = Literal["text", "table", "figure"]
KINDS: tuple[ChunkKind, ...] = get_args(ChunkKind)


class Chunk(NamedTuple):
    """A text, table or figure of a page; contexts and evidence are made of chunks."""

    page: int  # page number, from 1
    kind: ChunkKind
    box: tuple[float, float, float, float]  # left, top, right, bottom, as fractions of the page, from its top left
    text: str  # of a table: one row per line, cells separated by " | "; of a figure: ""


class Page(NamedTuple):
    """A page with its chunks in reading order."""

    number: int  # from 1
    chunks: tuple[Chunk, ...]


class Document(Protocol):
    """A document. Images are rendered on demand, as documents can be long."""

    name: str
    """Name by which questions and messages refer to it."""

    @property
    def pages(self) -> Sequence[Page]:
        """All pages; page n is at index n - 1."""
        ...

    def picture(self, page: int) -> "Image":
        """Return the image of a page, in RGB."""
        ...

    def figure(self, chunk: Chunk) -> "Image":
        """Return the image of a chunk, in RGB."""
        ...
