"""Further pages that do not answer the question, so that a model learns to look for the one that does."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from datamodules.document_qa.altered_document import AlteredDocument
from datamodules.document_qa.document import Chunk, Document, Page
from datamodules.document_qa.question import Question
from datamodules.document_qa.retrieval.terms import terms

if TYPE_CHECKING:
    from PIL.Image import Image

_LOOKED_AT = 8
"""Pages of another document that are looked at before there is no distractor."""

_EMPTY_WORDS = frozenset(
    "a an and are as at be by can does for from has have how in is it its many much of on or page question state that "
    "the this to what what's where which with say give name tell me you answer document please look using".split()
)


def with_distractors(
    questions: Sequence[Question],
    document: Document,
    ranked: Sequence[int],
    another: Callable[[], Document],
    most: int,
    random: np.random.Generator,
) -> tuple[Document, tuple[int, ...]]:
    """Up to `most` pages more, ranked last: of the same document, which contradicts itself nowhere, or of another one.

    Of another document only pages of texts and tables are taken, that have no word of the questions or their options:
    a page that speaks of the same thing might answer them otherwise.

    Returns:
        The document, which may have pages of another at its end, and the pages ranked.
    """
    wanted = int(random.integers(most + 1))
    if not wanted:
        return document, tuple(ranked)
    others = sorted(set(range(1, len(document.pages) + 1)) - set(ranked))
    own = random.permutation(others)[: int(random.integers(wanted + 1))].tolist()
    foreign: list[int] = []
    if len(own) < wanted:
        other = another()
        foreign = list(_unrelated(questions, other, wanted - len(own), random))
        if foreign:
            document = _Lengthened(document, other, foreign)
    added = range(len(document.pages) - len(foreign) + 1, len(document.pages) + 1)
    return document, (*ranked, *own, *added)


def _unrelated(
    questions: Sequence[Question], document: Document, most: int, random: np.random.Generator
) -> Iterator[int]:
    asked = [text for question in questions for text in (question.question, *question.options, question.answer or "")]
    words = set(terms("\n".join(asked))) - _EMPTY_WORDS
    for place in random.permutation(len(document.pages))[:_LOOKED_AT].tolist():
        page = document.pages[place]
        readable = page.chunks and all(chunk.kind != "figure" for chunk in page.chunks)
        if readable and not words & set(terms("\n".join(chunk.text for chunk in page.chunks))):
            yield page.number
            most -= 1
        if not most:
            return


class _Lengthened(AlteredDocument):
    """A document with pages of another one at its end, numbered on."""

    def __init__(self, document: Document, other: Document, numbers: Sequence[int]) -> None:
        super().__init__(document)
        self.other, self.numbers = other, numbers
        self._own = len(document.pages)

    @property
    def pages(self) -> Sequence[Page]:
        added = (
            self._renumbered(self.other.pages[number - 1], self._own + place)
            for place, number in enumerate(self.numbers, 1)
        )
        return (*self.document.pages, *added)

    def picture(self, page: int) -> "Image":
        if page <= self._own:
            return self.document.picture(page)
        return self.other.picture(self.numbers[page - self._own - 1])

    def figure(self, chunk: Chunk) -> "Image":
        if chunk.page <= self._own:
            return self.document.figure(chunk)
        return self.other.figure(chunk._replace(page=self.numbers[chunk.page - self._own - 1]))

    @staticmethod
    def _renumbered(page: Page, number: int) -> Page:
        return Page(number, tuple(chunk._replace(page=number) for chunk in page.chunks))
