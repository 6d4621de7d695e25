"""Pages by their words: BM25 in Lucene's variant (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020), by bm25s."""

from collections import OrderedDict
from importlib.util import find_spec
from typing import Any

import numpy as np

from datamodules.document_qa.document import Document, Page
from datamodules.document_qa.question import Question
from datamodules.document_qa.retrieval.terms import terms

_KEPT = 64  # indices at once; one of a long manual takes a megabyte


class Bm25:
    """A `Retriever`. Ranks all pages; those that have no word of the question come last, in their order."""

    def __init__(self) -> None:
        if find_spec("bm25s") is None:
            raise ValueError("bm25 needs bm25s, which is not installed: pip install -e '.[documents]'")
        # By identity, with the document itself, so that no other one can get its identity.
        self._indices: OrderedDict[int, tuple[Document, Any]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {"_indices": OrderedDict()}  # identities mean nothing to another process

    def rank(self, document: Document, question: Question) -> list[int]:
        scores = self.scores(document, " ".join((question.question, *question.options)))
        return [int(place) + 1 for place in np.argsort(-scores, kind="stable")]

    def scores(self, document: Document, text: str) -> np.ndarray:
        """[pages] float32, of a text with each page of a document."""
        index, number = self._index(document), len(document.pages)
        if index is None:
            return np.zeros(number, np.float32)
        known = [term for term in terms(text) if term in index.vocab_dict]
        if not known:
            return np.zeros(number, np.float32)
        scores: np.ndarray = index.get_scores(known)
        return scores

    def _index(self, document: Document) -> Any:
        kept = self._indices.get(id(document))
        if kept is None:
            kept = document, _indexed(document)
            self._indices[id(document)] = kept
            if len(self._indices) > _KEPT:
                self._indices.popitem(last=False)
        self._indices.move_to_end(id(document))
        return kept[1]


def page_text(page: Page) -> str:
    """All words of a page, in reading order."""
    return "\n".join(chunk.text for chunk in page.chunks if chunk.text)


def _indexed(document: Document) -> Any:
    """None where no page has a word."""
    import bm25s

    pages = [terms(page_text(page)) for page in document.pages]
    if not any(pages):
        return None
    index = bm25s.BM25(method="lucene", backend="numpy")
    index.index(pages, show_progress=False)
    return index
