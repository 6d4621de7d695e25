"""Ranks the pages of the document that a question names."""

from pathlib import Path

from typing_extensions import override

from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.retrieval.cross_encoder import CrossEncoder
from datamodules.document_qa.retrieval.page_mentions import mentioned_pages
from datamodules.document_qa.retrieval.saved_rankings import rankings_file, read_rankings
from datamodules.document_qa.retrieval.settings import WITH_RANKINGS, RetrieverSettings
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question, Retriever
from engine.data.errors import BadSampleError

_RRF = 60
"""Constant k of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""


def build_retriever(settings: RetrieverSettings) -> Retriever:
    """Return the retriever that the settings describe.

    Raises:
        ValueError: the settings are invalid, or the rankings file is missing or corrupt.
    """
    settings.check()
    if settings.kind == "all_pages":
        return AllPagesRetriever()
    if settings.kind == "oracle":
        return OracleRetriever(_First(BM25Retriever(), 1))
    return _First(_search(settings), settings.pages)


def _search(settings: RetrieverSettings) -> Retriever:
    """Return a retriever of all pages; pages that the question mentions stay first."""
    search: Retriever = BM25Retriever()
    if settings.kind in WITH_RANKINGS:
        assert settings.rankings is not None  # guaranteed by check()
        dense = DenseRetriever(rankings_file(settings.rankings))
        search = dense if settings.kind == "dense" else HybridRetriever(search, dense)
    if settings.reranker is not None:
        search = CrossEncoder(search, Path(settings.reranker), settings.reranked)
    return PageMentionRetriever(search) if settings.kind == "page_mention_bm25" else search


class AllPagesRetriever(Retriever):
    """Ranks pages in the document's order."""

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        return list(range(1, len(document.pages) + 1))


class OracleRetriever(Retriever):
    """Ranks the evidence pages; if they are unknown, another retriever's pages.

    An empty or longer list would reveal to the model which questions are unanswerable.
    """

    def __init__(self, otherwise: Retriever) -> None:
        self._otherwise = otherwise

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        pages, number = sorted(set(question.evidence_pages)), len(document.pages)
        if pages and not 1 <= pages[0] <= pages[-1] <= number:
            raise BadSampleError(
                f"{question.where or question.id}: evidence_pages are {pages}, {document.name} has pages 1 to {number}"
            )
        return pages or self._otherwise.rank(document, question)


class PageMentionRetriever(Retriever):
    """Ranks the pages that a question mentions first, then the pages of another retriever."""

    def __init__(self, rest: Retriever) -> None:
        self._rest = rest

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        number = len(document.pages)
        mentioned = [page for page in mentioned_pages(question.question) if page <= number]
        return list(dict.fromkeys((*mentioned, *self._rest.rank(document, question))))


class DenseRetriever(Retriever):
    """Ranks pages as in a saved file; a question that is missing in the file is an error."""

    def __init__(self, path: Path) -> None:
        self._path, self._ranked = path, read_rankings(path)

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        ranked = self._ranked.get(question.id)
        if ranked is None:
            raise ValueError(
                f"{self._path}: contains no ranking for question {question.id!r}"
                f"{f' ({question.where})' if question.where else ''}; run `predict` of the PageRetriever on it"
            )
        if ranked.document != question.document:
            raise ValueError(
                f"{self._path}: ranks pages of {ranked.document} for question {question.id!r}, but "
                f"{f'{question.where}: ' if question.where else ''}the question is about {question.document}; run "
                "`predict` of the PageRetriever on the same questions"
            )
        pages, number = ranked.pages, len(document.pages)
        if wrong := [page for page in pages if page > number]:
            raise ValueError(
                f"{self._path}: ranks page {wrong[0]} for question {question.id!r}, but {document.name} has pages 1 to "
                f"{number}; run `predict` of the PageRetriever on the same documents"
            )
        return list(pages)


class HybridRetriever(Retriever):
    """Reciprocal rank fusion of several retrievers: pages are ranked by the sum of 1 / (60 + rank)."""

    def __init__(self, *retrievers: Retriever) -> None:
        self._retrievers = retrievers

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        scores: dict[int, float] = {}
        for retriever in self._retrievers:
            for position, page in enumerate(retriever.rank(document, question), 1):
                scores[page] = scores.get(page, 0.0) + 1 / (_RRF + position)
        return sorted(scores, key=lambda page: (-scores[page], page))


class _First(Retriever):
    """Limits another retriever to its best pages."""

    def __init__(self, retriever: Retriever, pages: int | None) -> None:
        self._retriever, self._pages = retriever, pages

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        return self._retriever.rank(document, question)[: self._pages]
