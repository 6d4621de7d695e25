"""Computes metrics of page rankings: of a model, BM25, both combined, and chance."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import comb

from datamodules.document_qa.grading.page_recall import page_recall, reciprocal_rank
from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.retrieval.retrievers import HybridRetriever
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import SOURCES, Question

RECALLS = (1, 4)
"""k of page_recall@k."""

MODEL = ""
"""Name of the model among the systems that rank: its metrics have no prefix."""

Scores = Mapping[str, float]
"""{page_recall@1, ..., mrr: score} of a question."""


class PageRankingMetrics:
    """Metrics of a model, bm25, both combined and chance.

    Questions without known evidence pages are not counted.
    """

    def __init__(self) -> None:
        self._bm25 = BM25Retriever()
        self._scores: dict[str, dict[str, list[Scores]]] = defaultdict(lambda: defaultdict(list))

    def add(self, question: Question, document: Document, ranked: Sequence[int]) -> None:
        """Add the model's ranking of a document's pages for a question."""
        evidence = set(question.evidence_pages)
        if not evidence:
            return
        systems = {
            MODEL: ranking_scores(ranked, evidence),
            "bm25": ranking_scores(self._bm25.rank(document, question), evidence),
            "hybrid": ranking_scores(
                HybridRetriever(self._bm25, _SavedPages(ranked)).rank(document, question), evidence
            ),
            "random": random_scores(len(document.pages), len(evidence)),
        }
        for system, reached in systems.items():
            self._scores[system]["all"].append(reached)
            if question.source is not None:
                self._scores[system][question.source].append(reached)

    @property
    def metrics(self) -> dict[str, float]:
        """{`page_recall@1`, `figure/mrr`, `baseline/bm25/mrr`, ...: mean} of all questions and by evidence source."""
        means = {}
        for system, sources in self._scores.items():
            prefix = f"baseline/{system}/" if system else ""
            for source in filter(sources.__contains__, ("all", *SOURCES)):
                group = "" if source == "all" else f"{source}/"
                for name in sources[source][0]:
                    scores = [question_scores[name] for question_scores in sources[source]]
                    means[f"{prefix}{group}{name}"] = sum(scores) / len(scores)
        return means


def ranking_scores(ranked: Sequence[int], evidence: set[int]) -> Scores:
    """Return the scores of a ranking."""
    recalls = {f"page_recall@{first}": page_recall(ranked, evidence, first) for first in RECALLS}
    return {**recalls, "mrr": reciprocal_rank(ranked, evidence)}


def random_scores(pages: int, evidence: int) -> Scores:
    """Return the expected scores of a random ranking."""
    recalls = {f"page_recall@{first}": min(1.0, first / pages) for first in RECALLS}
    # Probability that the best evidence page has a rank: the other evidence pages are all behind it.
    orders = range(1, pages - evidence + 2)
    ranks = sum(Fraction(comb(pages - rank, evidence - 1), rank * comb(pages, evidence)) for rank in orders)
    return {**recalls, "mrr": float(ranks)}


class _SavedPages:
    """A Retriever that returns a given ranking."""

    def __init__(self, ranked: Sequence[int]) -> None:
        self._ranked = list(ranked)

    def rank(self, document: Document, question: Question) -> list[int]:
        return self._ranked
