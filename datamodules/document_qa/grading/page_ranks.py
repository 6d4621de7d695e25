"""How well pages are found: by a retriever, and by what the reader's answer rests on."""

from collections.abc import Collection, Sequence

from datamodules.document_qa.batch import AnswerRecord, Evidence


def page_recall(ranked: Sequence[int], evidence: Collection[int], first: int) -> float:
    """The share of the evidence's pages that are among the first so many of a retriever: recall at k.

    Where the evidence is on two pages the first page alone can reach 0.5.

    Raises:
        ValueError: there is no evidence.
    """
    wanted = set(evidence)
    if not wanted:
        raise ValueError("a question without evidence pages has no recall")
    return len(wanted & set(ranked[:first])) / len(wanted)


def reciprocal_rank(ranked: Sequence[int], evidence: Collection[int]) -> float:
    """1 / place of the best page with evidence, 0 where none is ranked; its mean is MRR (Voorhees, TREC-8, 1999)."""
    return next((1.0 / place for place, page in enumerate(ranked, 1) if page in evidence), 0.0)


def is_evidence_page(page: int, evidence: Collection[int]) -> float:
    """Whether the page that an answer rests on is one that the question's evidence is on.

    Its mean is APPA, answer page prediction accuracy (Tito et al., "Hierarchical multimodal transformers for
    Multi-Page DocVQA", 2022).
    """
    return float(page in evidence)


def rests_on(record: AnswerRecord) -> Evidence | None:
    """The chunk whose absence costs an answer most, the first one of equal ones; None: it was not looked for."""
    return max(record.evidence, key=lambda evidence: evidence.cost, default=None)
