"""Computes baselines that do not read the question: random choice, and the most frequent training answer."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from datamodules.document_qa.grading.grade import grade_text
from datamodules.document_qa.types.question import Question, QuestionSet
from engine.data.errors import BadSampleError

_MAX_COUNTED = 1000
"""Number of training samples whose answers are counted; generated sets may be much larger."""


class MostFrequentAnswers(NamedTuple):
    """The most frequent answers of a training set."""

    option: int | None = None  # index of the right option; None without choice questions
    text: str | None = None  # answer of open questions; None without open questions


def most_frequent_answers(questions: Iterable[Question]) -> MostFrequentAnswers:
    """Count the answers of questions; of equally frequent answers, the first by letter or alphabet is returned."""
    counts: Counter[int] = Counter()
    texts: Counter[str] = Counter()
    for question in questions:
        if question.options and question.right is not None:
            counts[question.right] += 1
        elif not question.options and question.answer is not None:
            texts[question.answer] += 1
    index = min(counts, key=lambda index: (-counts[index], index), default=None)
    return MostFrequentAnswers(index, min(texts, key=lambda text: (-texts[text], text), default=None))


def first_questions(questions: QuestionSet) -> Iterable[Question]:
    """Yield the questions of the first 1,000 samples of a set in epoch 0, without bad samples."""
    for index in range(min(len(questions), _MAX_COUNTED)):
        try:
            yield from questions.questions(0, index)
        except BadSampleError:
            continue


def random_score(question: Question) -> float | None:
    """Return the expected score of a random option; 0 for an open question; None if the right answer is not known."""
    if question.options:
        if question.right is None:
            return None
        return question.options.count(question.options[question.right]) / len(question.options)
    return None if question.answer is None else 0.0


def majority_score(
    question: Question, most_frequent: MostFrequentAnswers, relative_tolerance: float = 0.0
) -> float | None:
    """Return the score of the most frequent answer; None if the right answer is not known."""
    if question.options:
        if question.right is None:
            return None
        right = question.options[question.right]
        return float(most_frequent.option in {index for index, text in enumerate(question.options) if text == right})
    if question.answer is None or most_frequent.text is None:
        return None if question.answer is None else 0.0
    return grade_text(question, most_frequent.text, relative_tolerance).right
