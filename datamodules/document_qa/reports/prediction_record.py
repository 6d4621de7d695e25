"""Converts an answer record to a line of predictions.jsonl and back."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from datamodules.document_qa.batch import AnswerRecord, Evidence, ModelAnswer
from datamodules.document_qa.grading.page_recall import strongest_evidence
from datamodules.document_qa.types.question import OPTION_LETTERS, Question

_DIGITS = 6


def prediction_line(question: Question, record: AnswerRecord) -> dict[str, Any]:
    """Return the line of an answer: `id` and `answer`, as CCKS 2025 requires, with confidence and evidence.

    The answer to a choice question is the letter of the option; `text` is its text.
    """
    answer, evidence = record.whole, strongest_evidence(record)
    line: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "document": question.document,
        "answer": OPTION_LETTERS[answer.chosen] if answer.options else answer.text,
        "confidence": _round(answer.confidence),
        "page": None if evidence is None else evidence.page,
        "evidence": None if evidence is None else _evidence(evidence),
        "pages": list(record.pages),
        "ranked": list(record.ranked),
    }
    if answer.options:
        line["text"] = question.options[answer.chosen]
        line["options"] = dict(zip(OPTION_LETTERS, map(_round, shares(answer.options)), strict=False))
    return line


def shares(log_likelihoods: Sequence[float]) -> list[float]:
    """Return the probability of each option: the softmax of their log-likelihoods."""
    # Without this shift, all powers could underflow to 0.
    top_score = max(log_likelihoods)
    powers = [math.exp(value - top_score) for value in log_likelihoods]
    return [power / math.fsum(powers) for power in powers]


def parse_prediction_line(sample: int, line: Mapping[str, Any]) -> AnswerRecord | None:
    """Return the answer record of a line; None if the question was skipped, in which case the line has `why`."""
    if line["answer"] is None:
        return None
    # A share may have been rounded to 0, which has no logarithm.
    options = tuple(math.log(max(share, 10.0**-_DIGITS)) for share in line.get("options", {}).values())
    answer = ModelAnswer("" if options else line["answer"], options, line["confidence"])
    evidence = line["evidence"]
    found = () if evidence is None else (Evidence(**{**evidence, "box": tuple(evidence["box"])}),)
    return AnswerRecord(sample, answer, None, tuple(line["ranked"]), tuple(line["pages"]), found)


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "page": evidence.page,
        "kind": evidence.kind,
        "box": [_round(edge) for edge in evidence.box],
        "cost": _round(evidence.cost),
    }


def _round(number: float) -> float:
    return round(float(number), _DIGITS)
