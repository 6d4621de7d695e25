"""Infers the type of an answer where the question file does not state it."""

import re

from datamodules.document_qa.grading.abstention import says_unanswerable
from datamodules.document_qa.grading.quantities import is_quantity, quantities
from datamodules.document_qa.grading.quantity_match import is_limit
from datamodules.document_qa.grading.spatial_relations import parse_relation
from datamodules.document_qa.types.question import UNANSWERABLE, AnswerType

_PREPOSITION = re.compile(r"\b(?:of|from|than|to)\b|[^\x00-\u02ff]")
"""Distinguishes a place ("left of the valve") from a part ("the left valve"); Chinese needs no such words."""


def canonical_answer(answer: str) -> str:
    """Return UNANSWERABLE if the answer states that in other words; otherwise the answer."""
    normalized = answer.strip(" .").casefold()
    return UNANSWERABLE if normalized in (UNANSWERABLE, "unanswerable") else answer


def infer_answer_type(answer: str) -> AnswerType:
    """Return the type of a right answer to an open question; numbers may have a unit."""
    if says_unanswerable(answer):
        return "unanswerable"
    if is_quantity(answer):
        return "number"
    relation = parse_relation(answer)
    # "lower than 5" may be about a part; with a unit it is a limit.
    if is_limit(answer) and (relation is None or quantities(answer)[0].unit is not None):
        return "number"
    if relation is None or (relation.second and not relation.first and not _PREPOSITION.search(answer)):
        return "string"
    return "relation"
