"""Provides bases of document views: documents that change the content of another document."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, overload

from typing_extensions import override

from datamodules.document_qa.types.document import Chunk, Document, Page

if TYPE_CHECKING:
    from PIL.Image import Image


class DocumentView(Document):
    """A view that shows a document unchanged; subclasses override what they change."""

    def __init__(self, document: Document) -> None:
        self.document, self.name = document, document.name

    @property
    @override
    def pages(self) -> Sequence[Page]:
        return self.document.pages

    @override
    def picture(self, page: int) -> "Image":
        return self.document.picture(page)

    @override
    def figure(self, chunk: Chunk) -> "Image":
        return self.document.figure(chunk)


class PagesView(Sequence[Page]):
    """A sequence of pages that are changed when accessed, as a document may have thousands."""

    def __init__(self, pages: Sequence[Page], alter: Callable[[Page], Page]) -> None:
        self._pages, self._alter = pages, alter

    def __len__(self) -> int:
        return len(self._pages)

    @overload
    def __getitem__(self, index: int) -> Page: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Page]: ...

    def __getitem__(self, index: int | slice) -> Page | Sequence[Page]:
        if isinstance(index, slice):
            return PagesView(self._pages[index], self._alter)
        return self._alter(self._pages[index])
