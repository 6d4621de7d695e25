"""Answers without a look at the question: what a model's figures are worth is their distance from these."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from datamodules.document_qa.grading.grade import grade_text
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.multimodal.unusable import UnusableSample

_LOOKED_AT = 1000
"""Samples of a training set whose answers are counted; a set made as needed has more than anybody wants to see."""


class UsualAnswers(NamedTuple):
    """The most frequent answers of a training set."""

    place: int | None = None  # of the right option; None: it has no choice questions
    text: str | None = None  # of open questions, whatever they ask for; None: it has none


def usual_answers(questions: Iterable[Question]) -> UsualAnswers:
    """Of equally frequent ones the one that comes first by letter or alphabet."""
    places: Counter[int] = Counter()
    texts: Counter[str] = Counter()
    for question in questions:
        if question.options and question.right is not None:
            places[question.right] += 1
        elif not question.options and question.answer is not None:
            texts[question.answer] += 1
    place = min(places, key=lambda place: (-places[place], place), default=None)
    return UsualAnswers(place, min(texts, key=lambda text: (-texts[text], text), default=None))


def asked_in(questions: QuestionSet) -> Iterable[Question]:
    """The questions of the first 1,000 samples of a set, in its first epoch, without those that cannot be used."""
    for index in range(min(len(questions), _LOOKED_AT)):
        try:
            yield from questions.questions(0, index)
        except UnusableSample:
            continue


def by_chance(question: Question) -> float | None:
    """How right it is on average to choose any option; 0 of an open question; None: its answer is not known."""
    if question.options:
        if question.right is None:
            return None
        return question.options.count(question.options[question.right]) / len(question.options)
    return None if question.answer is None else 0.0


def by_custom(question: Question, usual: UsualAnswers, relative_tolerance: float = 0.0) -> float | None:
    """How right the usual answer is; None: the right one is not known."""
    if question.options:
        if question.right is None:
            return None
        right = question.options[question.right]
        return float(usual.place in {place for place, option in enumerate(question.options) if option == right})
    if question.answer is None or usual.text is None:
        return None if question.answer is None else 0.0
    return grade_text(question, usual.text, relative_tolerance).right
