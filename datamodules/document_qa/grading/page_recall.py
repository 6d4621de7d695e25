"""Scores page rankings, and the page that an answer is based on."""

from collections.abc import Collection, Sequence

from datamodules.document_qa.batch import AnswerRecord, Evidence


def page_recall(ranked: Sequence[int], evidence: Collection[int], first: int) -> float:
    """Return recall at k: the fraction of evidence pages among the first `first` ranked pages.

    If the evidence is on two pages, recall at 1 is at most 0.5.

    Raises:
        ValueError: there is no evidence.
    """
    evidence_pages = set(evidence)
    if not evidence_pages:
        raise ValueError("a question without evidence pages has no recall")
    return len(evidence_pages & set(ranked[:first])) / len(evidence_pages)


def reciprocal_rank(ranked: Sequence[int], evidence: Collection[int]) -> float:
    """Return 1 / rank of the best evidence page, 0 if none is ranked; the mean is MRR (Voorhees, TREC-8, 1999)."""
    return next((1.0 / rank for rank, page in enumerate(ranked, 1) if page in evidence), 0.0)


def is_evidence_page(page: int, evidence: Collection[int]) -> float:
    """Return 1 if the page is an evidence page, else 0.

    The mean is APPA, answer page prediction accuracy (Tito et al., "Hierarchical multimodal transformers for
    Multi-Page DocVQA", 2022).
    """
    return float(page in evidence)


def strongest_evidence(record: AnswerRecord) -> Evidence | None:
    """Return the chunk whose removal costs the answer most, the first among equals; None if it was not computed."""
    return max(record.evidence, key=lambda evidence: evidence.cost, default=None)
