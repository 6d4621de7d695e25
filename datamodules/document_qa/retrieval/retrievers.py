"""The retrievers but BM25; all rank within the document that a question names."""

from pathlib import Path

from datamodules.document_qa.document import Document
from datamodules.document_qa.question import Question, Retriever
from datamodules.document_qa.retrieval.bm25 import Bm25
from datamodules.document_qa.retrieval.page_mentions import mentioned_pages
from datamodules.document_qa.retrieval.rankings import rankings_file, read_rankings
from datamodules.document_qa.retrieval.settings import RetrieverSettings

_RRF = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""


def make_retriever(settings: RetrieverSettings) -> Retriever:
    """
    Raises:
        ValueError: the settings cannot be used, or the file of rankings is damaged or not there.
    """
    settings.check()
    if settings.kind == "all_pages":
        return AllPages()
    if settings.kind == "oracle":
        return Oracle(_First(Bm25(), 1))
    if settings.kind in ("bm25", "page_mention_bm25"):
        return _First(Bm25() if settings.kind == "bm25" else PageMention(Bm25()), settings.pages)
    assert settings.rankings is not None  # by check()
    dense = Dense(rankings_file(settings.rankings))
    return _First(dense if settings.kind == "dense" else Hybrid(Bm25(), dense), settings.pages)


class AllPages:
    """In their order."""

    def rank(self, document: Document, question: Question) -> list[int]:
        return list(range(1, len(document.pages) + 1))


class Oracle:
    """The evidence pages, in their order; where a question tells none, another retriever's.

    Nothing at all would tell the model which questions cannot be answered, and so would more pages than others have.
    """

    def __init__(self, otherwise: Retriever) -> None:
        self._otherwise = otherwise

    def rank(self, document: Document, question: Question) -> list[int]:
        pages, number = sorted(set(question.evidence_pages)), len(document.pages)
        if pages and not 1 <= pages[0] <= pages[-1] <= number:
            raise ValueError(
                f"{question.where or question.id}: evidence_pages are {pages}, {document.name} has pages 1 to {number}"
            )
        return pages or self._otherwise.rank(document, question)


class PageMention:
    """First the pages that the question names and the document has, then the others as another retriever has them."""

    def __init__(self, rest: Retriever) -> None:
        self._rest = rest

    def rank(self, document: Document, question: Question) -> list[int]:
        number = len(document.pages)
        named = [page for page in mentioned_pages(question.question) if page <= number]
        return list(dict.fromkeys((*named, *self._rest.rank(document, question))))


class Dense:
    """As a file says. Of a question that is not in it, it cannot be told: that is an error, not a bad ranking."""

    def __init__(self, path: Path) -> None:
        self._path, self._ranked = path, read_rankings(path)

    def rank(self, document: Document, question: Question) -> list[int]:
        ranked = self._ranked.get(question.id)
        if ranked is None:
            raise ValueError(
                f"{self._path}: has no question {question.id!r}"
                f"{f' ({question.where})' if question.where else ''}; run `predict` of the PageRetriever on it, too"
            )
        if ranked.document != question.document:
            raise ValueError(
                f"{self._path}: ranks the pages of {ranked.document} for question {question.id!r}, but "
                f"{f'{question.where}: ' if question.where else ''}it is about {question.document}: another question "
                "has this id. Run `predict` of the PageRetriever on these very questions"
            )
        pages, number = ranked.pages, len(document.pages)
        if wrong := [page for page in pages if page > number]:
            raise ValueError(
                f"{self._path}: ranks page {wrong[0]} for question {question.id!r}, but {document.name} has pages 1 to "
                f"{number}; was it written of other documents?"
            )
        return list(pages)


class Hybrid:
    """By the sum of 1 / (60 + rank) over several rankings: what all find good comes before what one finds best."""

    def __init__(self, *retrievers: Retriever) -> None:
        self._retrievers = retrievers

    def rank(self, document: Document, question: Question) -> list[int]:
        scores: dict[int, float] = {}
        for retriever in self._retrievers:
            for place, page in enumerate(retriever.rank(document, question), 1):
                scores[page] = scores.get(page, 0.0) + 1 / (_RRF + place)
        return sorted(scores, key=lambda page: (-scores[page], page))


class _First:
    """The best pages of a ranking."""

    def __init__(self, retriever: Retriever, pages: int | None) -> None:
        self._retriever, self._pages = retriever, pages

    def rank(self, document: Document, question: Question) -> list[int]:
        return self._retriever.rank(document, question)[: self._pages]
