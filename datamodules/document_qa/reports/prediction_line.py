"""An answer as `predict` writes it to predictions.jsonl, and as a record again."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from datamodules.document_qa.batch import AnswerRecord, Evidence, Said
from datamodules.document_qa.grading.page_ranks import rests_on
from datamodules.document_qa.question import Question
from datamodules.document_qa.questions.options import LETTERS

_DIGITS = 6


def prediction_line(question: Question, record: AnswerRecord) -> dict[str, Any]:
    """What is written of an answer: `id` and `answer`, as the competition of CCKS 2025 wants them, and how sure, why.

    The answer to a choice question is its option's letter; `text` has the option's words.
    """
    said, evidence = record.whole, rests_on(record)
    line: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "document": question.document,
        "answer": LETTERS[said.chosen] if said.options else said.text,
        "confidence": _rounded(said.confidence),
        "page": None if evidence is None else evidence.page,
        "evidence": None if evidence is None else _evidence(evidence),
        "pages": list(record.pages),
        "ranked": list(record.ranked),
    }
    if said.options:
        line["text"] = question.options[said.chosen]
        line["options"] = dict(zip(LETTERS, map(_rounded, shares(said.options)), strict=False))
    return line


def shares(log_likelihoods: Sequence[float]) -> list[float]:
    """How probable each option is of all of them: their softmax."""
    most = max(log_likelihoods)
    powers = [math.exp(one - most) for one in log_likelihoods]
    return [power / math.fsum(powers) for power in powers]


def record_of(sample: int, line: Mapping[str, Any]) -> AnswerRecord | None:
    """What a line tells of a record; None: the question was left out, and its line says `why`."""
    if line["answer"] is None:
        return None
    options = tuple(math.log(max(share, 10.0**-_DIGITS)) for share in line.get("options", {}).values())
    said = Said("" if options else line["answer"], options, line["confidence"])
    evidence = line["evidence"]
    found = () if evidence is None else (Evidence(**{**evidence, "box": tuple(evidence["box"])}),)
    return AnswerRecord(sample, said, None, tuple(line["ranked"]), tuple(line["pages"]), found)


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "page": evidence.page,
        "kind": evidence.kind,
        "box": [_rounded(edge) for edge in evidence.box],
        "cost": _rounded(evidence.cost),
    }


def _rounded(number: float) -> float:
    return round(float(number), _DIGITS)
