"""How right one answer is, by all measures that apply to its question."""

from collections.abc import Callable
from typing import NamedTuple

from datamodules.document_qa.batch import Said
from datamodules.document_qa.grading.abstention import is_abstention, is_unanswerable, says_unanswerable
from datamodules.document_qa.grading.quantities import same_quantities
from datamodules.document_qa.grading.relations import same_relation
from datamodules.document_qa.grading.words import anls, character_f1, exact_match, token_f1
from datamodules.document_qa.question import Question

_WORDS: dict[str, Callable[[str, str], float]] = {
    "exact_match": exact_match,
    "token_f1": token_f1,
    "character_f1": character_f1,
    "anls": anls,
}


class Grade(NamedTuple):
    """Points from 0 to 1."""

    right: float | None  # by the measure that fits the question's type; None: the right answer is not known
    measures: dict[str, float]  # {name: points}, of open questions whose right answer is known
    abstained: bool


def grade(question: Question, said: Said, relative_tolerance: float = 0.0) -> Grade:
    """A choice is right if the right option was chosen, or another of the same text. An open answer is right, by the
    type of its question, if it is the same quantity, says the same of two parts, or rightly abstains; else if it is the
    same text (exact match).

    Args:
        relative_tolerance: of numbers, see `same_quantities`.
    """
    if question.options:
        chosen = question.options[said.chosen] if said.options else None
        right = None if question.right is None else float(chosen == question.options[question.right])
        return Grade(right, {}, chosen is not None and says_unanswerable(chosen))
    return grade_text(question, said.text, relative_tolerance)


def grade_text(question: Question, text: str, relative_tolerance: float = 0.0) -> Grade:
    """Of an open question. Of several right answers the one counts that an answer comes closest to, by each measure.

    Where there is no answer, abstaining is the same text in whatever words.
    """
    abstained = is_abstention(text)
    if question.answer is None:
        return Grade(None, {}, abstained)
    accepted = (question.answer, *question.also_right)
    if is_unanswerable(question):
        right = float(abstained or any(exact_match(answer, text) for answer in accepted))
        return Grade(right, dict.fromkeys(_WORDS, right), abstained)
    measures = {name: max(measure(answer, text) for answer in accepted) for name, measure in _WORDS.items()}
    right = measures["exact_match"]
    if question.answer_type == "number":
        right = max(same_quantities(answer, text, relative_tolerance) for answer in accepted)
        measures["numeric_accuracy"] = right
    elif question.answer_type == "relation":
        right = max(right, *(same_relation(answer, text, question.question) for answer in accepted))
        measures["relation_accuracy"] = right
    # "No data link" is no abstention where it is right.
    return Grade(right, measures, abstained and right < 1.0)
