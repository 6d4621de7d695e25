"""Adds pages that do not answer the question, so that a model learns to find the page that does."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from datamodules.document_qa.retrieval.tokenization import tokenize
from datamodules.document_qa.types.document import Chunk, Document, Page
from datamodules.document_qa.types.question import Question
from datamodules.document_qa.views.document_view import DocumentView

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_TRIED_PAGES = 8
"""Number of pages of another document that are tried."""

_EMPTY_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "does",
        "for",
        "from",
        "has",
        "have",
        "how",
        "in",
        "is",
        "it",
        "its",
        "many",
        "much",
        "of",
        "on",
        "or",
        "page",
        "question",
        "state",
        "that",
        "the",
        "this",
        "to",
        "what",
        "what's",
        "where",
        "which",
        "with",
        "say",
        "give",
        "name",
        "tell",
        "me",
        "you",
        "answer",
        "document",
        "please",
        "look",
        "using",
    ]
)


def add_distractor_pages(
    questions: Sequence[Question],
    document: Document,
    ranked: Sequence[int],
    another: Callable[[], Document],
    max_pages: int,
    random: np.random.Generator,
) -> tuple[Document, tuple[int, ...]]:
    """Add up to `most` distractor pages at the end of the ranking, from the same or another document.

    Pages of another document must have texts and tables only, and share no word with the questions or their options:
    a page on the same subject might contain a different answer.

    Returns:
        The document, extended if pages of another document were added, and the ranked pages.
    """
    num_pages = int(random.integers(max_pages + 1))
    if not num_pages:
        return document, tuple(ranked)
    others = sorted(set(range(1, len(document.pages) + 1)) - set(ranked))
    # A random share of the pages from the same document, which are the harder distractors; the rest from another.
    same_document = random.permutation(others)[: int(random.integers(num_pages + 1))].tolist()
    foreign: list[int] = []
    if len(same_document) < num_pages:
        other = another()
        foreign = list(_unrelated_pages(questions, other, num_pages - len(same_document), random))
        if foreign:
            document = _ExtendedDocument(document, other, foreign)
    # The appended pages are the last pages of the extended document.
    added = range(len(document.pages) - len(foreign) + 1, len(document.pages) + 1)
    return document, (*ranked, *same_document, *added)


def _unrelated_pages(
    questions: Sequence[Question], document: Document, max_pages: int, random: np.random.Generator
) -> Iterator[int]:
    # Words of questions, options and answers except function words: a page with any of them may be on the subject.
    asked = [text for question in questions for text in (question.question, *question.options, question.answer or "")]
    words = set(tokenize("\n".join(asked))) - _EMPTY_WORDS
    for index in random.permutation(len(document.pages))[:_MAX_TRIED_PAGES].tolist():
        # Words describe a page only if it has chunks and no drawing or photo.
        page = document.pages[index]
        readable = page.chunks and all(chunk.kind != "figure" for chunk in page.chunks)
        if readable and not words & set(tokenize("\n".join(chunk.text for chunk in page.chunks))):
            yield page.number
            max_pages -= 1
        if not max_pages:
            return


class _ExtendedDocument(DocumentView):
    """A document with pages of another document appended."""

    def __init__(self, document: Document, other: Document, numbers: Sequence[int]) -> None:
        super().__init__(document)
        self.other, self.numbers = other, numbers
        self._own = len(document.pages)

    @property
    def pages(self) -> Sequence[Page]:
        added = (
            self._renumber(self.other.pages[number - 1], self._own + offset)
            for offset, number in enumerate(self.numbers, 1)
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
    def _renumber(page: Page, number: int) -> Page:
        return Page(number, tuple(chunk._replace(page=number) for chunk in page.chunks))
