"""Grades an answer by all measures that apply to its question."""

from collections.abc import Callable
from typing import NamedTuple

from datamodules.document_qa.batch import ModelAnswer
from datamodules.document_qa.grading.abstention import is_abstention, is_unanswerable, says_unanswerable
from datamodules.document_qa.grading.quantity_match import same_quantities
from datamodules.document_qa.grading.spatial_relations import same_relation
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.text.text_similarity import anls, character_f1, exact_match, token_f1

_WORDS: dict[str, Callable[[str, str], float]] = {
    "exact_match": exact_match,
    "token_f1": token_f1,
    "character_f1": character_f1,
    "anls": anls,
}


class Grade(NamedTuple):
    """Scores of an answer, from 0 to 1."""

    right: float | None  # by the measure of the answer type; None if the right answer is not known
    measures: dict[str, float]  # {measure: score} of open questions with a known right answer
    abstained: bool


def grade(question: Question, given: ModelAnswer, relative_tolerance: float = 0.0) -> Grade:
    """Grade an answer.

    An answer to a choice question is right if it chooses the right option, or another with the same text. An open
    answer is graded by the type of its question: quantities, relations and abstentions are compared by meaning, other
    answers by exact match.

    Args:
        question: the question, with the right answer if it is known.
        given: the answer.
        relative_tolerance: tolerance of numbers, see `same_quantities`.
    """
    if question.options:
        chosen_option = question.options[given.chosen] if given.options else None
        right = None if question.right is None else float(chosen_option == question.options[question.right])
        return Grade(right, {}, chosen_option is not None and says_unanswerable(chosen_option))
    return grade_text(question, given.text, relative_tolerance)


def grade_text(question: Question, text: str, relative_tolerance: float = 0.0) -> Grade:
    """Grade an answer to an open question. Of several accepted answers, the best score counts for each measure.

    For an unanswerable question, every abstention counts as a match.
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
    # A right answer such as "No data link" is not an abstention.
    return Grade(right, measures, abstained and right < 1.0)


def answer_text(question: Question, answer: ModelAnswer) -> str:
    """Return the text of the chosen option, or the generated text."""
    return question.options[answer.chosen] if question.options else answer.text
