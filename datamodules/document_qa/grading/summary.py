"""All figures of an evaluation, from its records."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from datamodules.document_qa.batch import AnswerRecord, Said
from datamodules.document_qa.grading.abstention import abstention_f1, is_unanswerable
from datamodules.document_qa.grading.baselines import UsualAnswers, by_chance, by_custom
from datamodules.document_qa.grading.calibration import calibration_error
from datamodules.document_qa.grading.grade import Grade, grade
from datamodules.document_qa.grading.intervals import Figure, mean
from datamodules.document_qa.grading.letters import balanced_accuracy
from datamodules.document_qa.grading.page_ranks import is_evidence_page, page_recall, rests_on
from datamodules.document_qa.question import SOURCES, Question

FIRST_PAGES = (1, 4)
"""k of page_recall@k."""

Measure = Callable[[Sequence["Graded"]], Figure | None]


class Graded(NamedTuple):
    """What was said to a question, and how right it is."""

    question: Question
    record: AnswerRecord
    said: Said  # with the context or without it
    grade: Grade


def summary(
    questions: Callable[[int], Question],
    records: Sequence[AnswerRecord],
    usual: UsualAnswers | None = None,
    relative_tolerance: float = 0.0,
    retrieved: bool = True,
) -> dict[str, float]:
    """The value of each of `figures`, which see."""
    found = figures(questions, records, usual, relative_tolerance, retrieved)
    return {name: figure.value for name, figure in found.items()}


def figures(
    questions: Callable[[int], Question],
    records: Sequence[AnswerRecord],
    usual: UsualAnswers | None = None,
    relative_tolerance: float = 0.0,
    retrieved: bool = True,
) -> dict[str, Figure]:
    """{name: figure} of all questions, as SOURCE/name of those with that evidence, and of who else answers them.

    There are only those that apply: no abstention_f1 where every question can be answered.

    loss, perplexity: of the right answers, per token.
    accuracy: share of right answers, each by the measure of its type, see `grade`.
    choice_accuracy: of choice questions, where there are others, too; balanced_accuracy: see letters.
    exact_match, token_f1, character_f1, anls: of open questions; numeric_accuracy, relation_accuracy: of those.
    abstention_f1: where some can be answered and some cannot. calibration_error: see calibration.
    page_recall@k: of the retriever; context_recall: share of the evidence's pages that the context shows.
    evidence_page_accuracy: of the page that the answer rests on, where that was looked for.
    baseline/question_only: the model without documents. baseline/random, baseline/majority: see baselines.

    Args:
        questions: gives a sample's question.
        records: in any order; of two of one sample the first counts. Sums are exact, so the figures do not depend on
            how many processes found them.
        usual: what is answered by custom; None: nobody knows, and there is no baseline/majority.
        relative_tolerance: of numbers.
        retrieved: pages were looked for, and a question for which none was found counts with a recall of 0; else there
            are no recalls.

    Raises:
        ValueError: the confidence of an answer is not a number; the message names the question.
    """
    records = in_order(records)
    asked = [questions(record.sample) for record in records]
    own = graded(asked, records, relative_tolerance)
    measures = _MEASURES if retrieved else {name: one for name, one in _MEASURES.items() if name not in _RECALLS}
    found = _by_source(own, measures)
    blind = [
        Graded(one.question, one.record, said, grade(one.question, said, relative_tolerance))
        for one in own
        if (said := one.record.question_only) is not None
    ]
    loss = _loss(blind)
    found |= _named("baseline/question_only/", _by_source(blind, {"accuracy": _accuracy}))
    found |= {} if loss is None else {"baseline/question_only/loss": loss}
    found |= _named("baseline/random/", _by_source(own, {"accuracy": _expected(by_chance)}))
    if usual is not None:
        by_usual = _expected(lambda question: by_custom(question, usual, relative_tolerance))
        found |= _named("baseline/majority/", _by_source(own, {"accuracy": by_usual}))
    return found


def graded(
    questions: Sequence[Question], records: Sequence[AnswerRecord], relative_tolerance: float = 0.0
) -> list[Graded]:
    """What was said with the context."""
    pairs = zip(questions, records, strict=True)
    return [Graded(one, record, record.whole, grade(one, record.whole, relative_tolerance)) for one, record in pairs]


def in_order(records: Iterable[AnswerRecord]) -> list[AnswerRecord]:
    """By sample, each once: processes may pad what they share out with samples that another one has, too."""
    unique: dict[int, AnswerRecord] = {}
    for record in records:
        unique.setdefault(record.sample, record)
    return [unique[sample] for sample in sorted(unique)]


def _by_source(items: Sequence[Graded], measures: Mapping[str, Measure]) -> dict[str, Figure]:
    """Of all and of each source: a measure and its parts come one after the other."""
    groups = {source: [one for one in items if one.question.source == source] for source in SOURCES}
    parts = {"": items, **{f"{source}/": group for source, group in groups.items() if group}}
    found = ((prefix + name, measure(group)) for name, measure in measures.items() for prefix, group in parts.items())
    return {name: figure for name, figure in found if figure is not None}


def _named(prefix: str, found: Mapping[str, Figure]) -> dict[str, Figure]:
    return {prefix + name: figure for name, figure in found.items()}


def _mean(points: Iterable[float | None]) -> Figure | None:
    known = [one for one in points if one is not None]
    return mean(known) if known else None


def _accuracy(items: Sequence[Graded]) -> Figure | None:
    return _mean(one.grade.right for one in items)


def _choice_accuracy(items: Sequence[Graded]) -> Figure | None:
    choices = [one for one in items if one.question.options]
    return _mean(one.grade.right for one in choices) if len(choices) < len(items) else None


def _balanced_accuracy(items: Sequence[Graded]) -> Figure | None:
    pairs = [
        (one.question.right, one.question.right if one.grade.right else one.said.chosen)
        for one in items
        if one.question.right is not None
    ]
    right, chosen = [one for one, _ in pairs], [one for _, one in pairs]
    return Figure(balanced_accuracy(right, chosen), len(pairs)) if pairs else None


def _points(name: str) -> Measure:
    return lambda items: _mean(one.grade.measures.get(name) for one in items)


def _abstention_f1(items: Sequence[Graded]) -> Figure | None:
    known = [one for one in items if one.grade.right is not None]
    unanswerable = [is_unanswerable(one.question) for one in known]
    if len(set(unanswerable)) < 2:
        return None
    return Figure(abstention_f1(unanswerable, [one.grade.abstained for one in known]), len(known))


def _calibration_error(items: Sequence[Graded]) -> Figure | None:
    known = [(one.said.confidence, one.grade.right) for one in items if one.grade.right is not None]
    if not known:
        return None
    unsure = [one for one in items if one.grade.right is not None and not math.isfinite(one.said.confidence)]
    if unsure:
        first = unsure[0]
        raise ValueError(
            f"sample {first.record.sample} (question {first.question.id}, document {first.question.document}): the "
            f"confidence of its answer is {first.said.confidence}, as of {len(unsure)} of {len(known)} answers: the "
            "model has diverged, or overflows in 16 bits. Take an earlier checkpoint, train with a lower learning rate "
            "or with trainer.precision bf16-mixed or 32-true"
        )
    return Figure(calibration_error([one for one, _ in known], [right for _, right in known]), len(known))


def _loss(items: Sequence[Graded]) -> Figure | None:
    terms = sum(one.said.terms for one in items)
    count = sum(one.said.terms > 0 for one in items)
    return Figure(math.fsum(one.said.loss for one in items) / terms, count) if terms else None


def _perplexity(items: Sequence[Graded]) -> Figure | None:
    loss = _loss(items)
    return None if loss is None else loss._replace(value=math.exp(min(loss.value, 700.0)))


def _page_recall(first: int) -> Measure:
    return lambda items: _mean(
        page_recall(one.record.ranked, one.question.evidence_pages, first)
        for one in items
        if one.question.evidence_pages
    )


def _context_recall(items: Sequence[Graded]) -> Figure | None:
    return _mean(
        page_recall(one.record.pages, one.question.evidence_pages, len(one.record.pages))
        for one in items
        if one.question.evidence_pages
    )


def _evidence_page_accuracy(items: Sequence[Graded]) -> Figure | None:
    return _mean(
        is_evidence_page(evidence.page, one.question.evidence_pages)
        for one in items
        if one.question.evidence_pages and (evidence := rests_on(one.record)) is not None
    )


def _expected(points: Callable[[Question], float | None]) -> Measure:
    """Of a rule; where it throws dice its figure is their mean, which has no interval."""

    def measure(items: Sequence[Graded]) -> Figure | None:
        found = _mean(points(one.question) for one in items)
        return None if found is None else Figure(found.value, found.questions)

    return measure


_MEASURES: dict[str, Measure] = {
    "accuracy": _accuracy,
    "choice_accuracy": _choice_accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "exact_match": _points("exact_match"),
    "numeric_accuracy": _points("numeric_accuracy"),
    "relation_accuracy": _points("relation_accuracy"),
    "token_f1": _points("token_f1"),
    "character_f1": _points("character_f1"),
    "anls": _points("anls"),
    "abstention_f1": _abstention_f1,
    "calibration_error": _calibration_error,
    **{f"page_recall@{first}": _page_recall(first) for first in FIRST_PAGES},
    "context_recall": _context_recall,
    "evidence_page_accuracy": _evidence_page_accuracy,
    "loss": _loss,
    "perplexity": _perplexity,
}

_RECALLS = {*(f"page_recall@{first}" for first in FIRST_PAGES), "context_recall"}
