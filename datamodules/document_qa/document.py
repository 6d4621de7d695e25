"""A document as the family reads it: pages, and on each page pieces of text, tables and figures with their places."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

if TYPE_CHECKING:
    from PIL.Image import Image

ChunkKind = Literal["text", "table", "figure"]
KINDS: tuple[ChunkKind, ...] = get_args(ChunkKind)


class Chunk(NamedTuple):
    """A piece of a page."""

    page: int  # its number, from 1
    kind: ChunkKind
    box: tuple[float, float, float, float]  # left, top, right, bottom: shares of the page's edges, from its top left
    text: str  # of a table: a row a line, cells between " | "; of a figure: "", it is looked at


class Page(NamedTuple):
    """A page, in reading order."""

    number: int  # from 1
    chunks: tuple[Chunk, ...]


class Document(Protocol):
    """Pages and their pictures. A picture is made when it is asked for: documents can be long."""

    name: str
    """What questions call it, and messages."""

    @property
    def pages(self) -> Sequence[Page]:
        """All of them, page n at n - 1."""
        ...

    def picture(self, page: int) -> "Image":
        """A page as it looks, in RGB."""
        ...

    def figure(self, chunk: Chunk) -> "Image":
        """A chunk as it looks, cut out of its page, in RGB."""
        ...
