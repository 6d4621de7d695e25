"""What kind of answer a text is, where nobody has told."""

import re

from datamodules.document_qa.grading.abstention import says_unanswerable
from datamodules.document_qa.grading.quantities import is_quantity
from datamodules.document_qa.grading.relations import parse_relation
from datamodules.document_qa.question import UNANSWERABLE, AnswerType

_OF_SOMETHING = re.compile(r"\b(?:of|from|than|to)\b|[^\x00-\u02ff]")
"""The left of the valve is a place, the left valve is not. Chinese has no such words, and is told by its forms."""


def in_its_words(answer: str) -> str:
    """The answer; where it says no more than UNANSWERABLE, that."""
    said = answer.strip(" .").casefold()
    return UNANSWERABLE if said in (UNANSWERABLE, "unanswerable") else answer


def answer_type_of(answer: str) -> AnswerType:
    """The type of a right answer to an open question: a number may have a unit."""
    if says_unanswerable(answer):
        return "unanswerable"
    if is_quantity(answer):
        return "number"
    place = parse_relation(answer)
    if place is None or (place.second and not place.first and not _OF_SOMETHING.search(answer)):
        return "string"
    return "relation"
