"""How well pages are found by vectors, beside words, both together, and chance."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import comb

from datamodules.document_qa.document import Document
from datamodules.document_qa.grading.page_ranks import page_recall, reciprocal_rank
from datamodules.document_qa.question import SOURCES, Question
from datamodules.document_qa.retrieval.bm25 import Bm25
from datamodules.document_qa.retrieval.retrievers import Hybrid

RECALLS = (1, 4)
"""Pages, the best ones, among which the evidence should be."""

MODEL = ""

Points = Mapping[str, float]
"""{page_recall@1, ..., mrr: of one question}."""


class FoundPages:
    """What a model, bm25, both and chance reach, question by question.

    Questions without evidence pages, because they cannot be answered or nobody has said, are not counted.
    """

    def __init__(self) -> None:
        self._bm25 = Bm25()
        self._points: dict[str, dict[str, list[Points]]] = defaultdict(lambda: defaultdict(list))

    def add(self, question: Question, document: Document, ranked: Sequence[int]) -> None:
        """Takes in how the model ranked a document's pages for a question."""
        evidence = set(question.evidence_pages)
        if not evidence:
            return
        systems = {
            MODEL: points(ranked, evidence),
            "bm25": points(self._bm25.rank(document, question), evidence),
            "hybrid": points(Hybrid(self._bm25, _Given(ranked)).rank(document, question), evidence),
            "random": random_points(len(document.pages), len(evidence)),
        }
        for system, reached in systems.items():
            self._points[system]["all"].append(reached)
            if question.source is not None:
                self._points[system][question.source].append(reached)

    @property
    def figures(self) -> dict[str, float]:
        """{`page_recall@1`, `figure/mrr`, `baseline/bm25/mrr`, ...: mean}, of all questions and by evidence source."""
        found = {}
        for system, sources in self._points.items():
            prefix = f"baseline/{system}/" if system else ""
            for source in filter(sources.__contains__, ("all", *SOURCES)):
                shown = "" if source == "all" else f"{source}/"
                for name in sources[source][0]:
                    reached = [of_one[name] for of_one in sources[source]]
                    found[f"{prefix}{shown}{name}"] = sum(reached) / len(reached)
        return found


def points(ranked: Sequence[int], evidence: set[int]) -> Points:
    """Of one ranking."""
    recalls = {f"page_recall@{first}": page_recall(ranked, evidence, first) for first in RECALLS}
    return {**recalls, "mrr": reciprocal_rank(ranked, evidence)}


def random_points(pages: int, evidence: int) -> Points:
    """What is expected of a document's pages in random order."""
    recalls = {f"page_recall@{first}": min(1.0, first / pages) for first in RECALLS}
    # The best evidence page stands at a place when the others stand behind it.
    orders = range(1, pages - evidence + 2)
    ranks = sum(Fraction(comb(pages - place, evidence - 1), place * comb(pages, evidence)) for place in orders)
    return {**recalls, "mrr": float(ranks)}


class _Given:
    """A ranking that is there already, as a Retriever."""

    def __init__(self, ranked: Sequence[int]) -> None:
        self._ranked = list(ranked)

    def rank(self, document: Document, question: Question) -> list[int]:
        return self._ranked
