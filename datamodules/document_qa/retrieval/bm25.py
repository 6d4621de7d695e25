"""Ranks pages by BM25 in Lucene's variant (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020), with bm25s."""

from collections import OrderedDict
from typing import Any

import numpy as np
from typing_extensions import override

from datamodules.document_qa.retrieval.question_terms import identifiers, question_terms
from datamodules.document_qa.retrieval.tokenization import tokenize
from datamodules.document_qa.types.document import Document, Page
from datamodules.document_qa.types.question import Question, Retriever

_FUNCTION_WORDS = 0.1
"""Weight of function words: they decide between equal pages, and for questions that have no other words."""

_KEPT = 64  # cached indices; the index of a long manual takes about a megabyte


class BM25Retriever(Retriever):
    """A Retriever that ranks all pages; pages without a word of the question come last, in the document's order."""

    def __init__(self) -> None:
        # Keyed by id(). The document is kept alive, so no other object can get the same id.
        self._indices: OrderedDict[int, tuple[Document, Any]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {"_indices": OrderedDict()}  # an id() is valid in its own process only

    @override
    def rank(self, document: Document, question: Question) -> list[int]:
        scores = self.scores(document, " ".join((question.question, *question.options)))
        return [int(index) + 1 for index in np.argsort(-scores, kind="stable")]

    def scores(self, document: Document, text: str) -> np.ndarray:
        """Return the score of each page of a document for a text: [pages] float32."""
        index, number = self._index(document), len(document.pages)
        if index is None:
            return np.zeros(number, np.float32)
        asked, scores = question_terms(text), np.zeros(number, np.float32)
        for words, weight in ((asked.subject, 1.0), (asked.function, _FUNCTION_WORDS)):
            if indexed_terms := [term for term in words if term in index.vocab_dict]:
                scores += weight * index.get_scores(indexed_terms)
        return scores

    def _index(self, document: Document) -> Any:
        cached = self._indices.get(id(document))
        if cached is None:
            cached = document, _build_index(document)
            self._indices[id(document)] = cached
            if len(self._indices) > _KEPT:
                self._indices.popitem(last=False)
        self._indices.move_to_end(id(document))
        return cached[1]


def page_text(page: Page) -> str:
    """Return all text of a page, in reading order."""
    return "\n".join(chunk.text for chunk in page.chunks if chunk.text)


def _build_index(document: Document) -> Any:
    """Build the index of a document; None if no page has a word."""
    import bm25s

    texts = [page_text(page) for page in document.pages]
    pages = [tokenize(text) + identifiers(text) for text in texts]
    if not any(pages):
        return None
    index = bm25s.BM25(method="lucene", backend="numpy")
    index.index(pages, show_progress=False)
    return index
