"""Documents that differ from others in what they show: the base of ablation, evidence and augmentation."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, overload

from datamodules.document_qa.document import Chunk, Document, Page

if TYPE_CHECKING:
    from PIL.Image import Image


class AlteredDocument:
    """A document as another one; each kind overrides what it alters."""

    def __init__(self, document: Document) -> None:
        self.document, self.name = document, document.name

    @property
    def pages(self) -> Sequence[Page]:
        return self.document.pages

    def picture(self, page: int) -> "Image":
        return self.document.picture(page)

    def figure(self, chunk: Chunk) -> "Image":
        return self.document.figure(chunk)


class AlteredPages(Sequence[Page]):
    """Pages that are altered when they are looked at: a document may have thousands."""

    def __init__(self, pages: Sequence[Page], alter: Callable[[Page], Page]) -> None:
        self._pages, self._alter = pages, alter

    def __len__(self) -> int:
        return len(self._pages)

    @overload
    def __getitem__(self, place: int) -> Page: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Page]: ...

    def __getitem__(self, place: int | slice) -> Page | Sequence[Page]:
        if isinstance(place, slice):
            return AlteredPages(self._pages[place], self._alter)
        return self._alter(self._pages[place])
