"""Computes all metrics of an evaluation from its records."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from datamodules.document_qa.batch import AnswerRecord, ModelAnswer
from datamodules.document_qa.grading.abstention import abstention_f1, is_unanswerable
from datamodules.document_qa.grading.balanced_accuracy import balanced_accuracy
from datamodules.document_qa.grading.baselines import MostFrequentAnswers, majority_score, random_score
from datamodules.document_qa.grading.calibration import calibration_error
from datamodules.document_qa.grading.grade import Grade, grade
from datamodules.document_qa.grading.page_recall import is_evidence_page, page_recall, strongest_evidence
from datamodules.document_qa.types.question import SOURCES, Question
from engine.statistics.confidence_intervals import MetricEstimate, mean

FIRST_PAGES = (1, 4)
"""k of page_recall@k."""

_RECALLS = {*(f"page_recall@{first}" for first in FIRST_PAGES), "context_recall"}

Measure = Callable[[Sequence["GradedRecord"]], MetricEstimate | None]


class GradedRecord(NamedTuple):
    """An answer to one question with its grade, from which all metrics are computed."""

    question: Question
    record: AnswerRecord
    given: ModelAnswer  # with or without the context
    grade: Grade


def metric_values(
    questions: Callable[[int], Question],
    records: Sequence[AnswerRecord],
    most_frequent: MostFrequentAnswers | None = None,
    relative_tolerance: float = 0.0,
    retrieved: bool = True,
) -> dict[str, float]:
    """Return the values of all metrics, see `compute_metrics`."""
    metrics = compute_metrics(questions, records, most_frequent, relative_tolerance, retrieved)
    return {name: metric.value for name, metric in metrics.items()}


def compute_metrics(
    questions: Callable[[int], Question],
    records: Sequence[AnswerRecord],
    most_frequent: MostFrequentAnswers | None = None,
    relative_tolerance: float = 0.0,
    retrieved: bool = True,
) -> dict[str, MetricEstimate]:
    """Compute {name: metric}; SOURCE/name is the metric over questions with that evidence source.

    Metrics that do not apply are missing, for example abstention_f1 if all questions are answerable.

    loss, perplexity: of the right answers, per token.
    accuracy: fraction of right answers, graded by answer type, see `grade`.
    choice_accuracy: accuracy of choice questions, if there are also others. balanced_accuracy: see balanced_accuracy.
    exact_match, token_f1, character_f1, anls: of open questions. numeric_accuracy, relation_accuracy: of those types.
    abstention_f1: if there are answerable and unanswerable questions. calibration_error: see calibration.
    page_recall@k: recall of the retriever. context_recall: fraction of evidence pages in the context.
    evidence_page_accuracy: accuracy of the page that the answer is based on, if it was computed.
    baseline/question_only: the model without documents. baseline/random, baseline/majority: see baselines.

    Args:
        questions: returns the question of a sample.
        records: in any order; of several records of a sample the first counts. Sums are exact, so the metrics do not
            depend on the world size.
        most_frequent: the most frequent answers of the training set; None for no baseline/majority.
        relative_tolerance: tolerance of numbers.
        retrieved: whether pages were retrieved; if not, there are no recalls. A question without any retrieved page
            counts with a recall of 0.

    Raises:
        ValueError: the confidence of an answer is not finite; the message names the question.
    """
    records = unique_by_sample(records)
    asked = [questions(record.sample) for record in records]
    graded = grade_answers(asked, records, relative_tolerance)
    measures = _MEASURES if retrieved else {name: fn for name, fn in _MEASURES.items() if name not in _RECALLS}
    metrics = _measure_by_source(graded, measures)
    blind = [
        GradedRecord(item.question, item.record, answer, grade(item.question, answer, relative_tolerance))
        for item in graded
        if (answer := item.record.question_only) is not None
    ]
    loss = _loss(blind)
    metrics |= _add_prefix("baseline/question_only/", _measure_by_source(blind, {"accuracy": _accuracy}))
    metrics |= {} if loss is None else {"baseline/question_only/loss": loss}
    metrics |= _add_prefix("baseline/random/", _measure_by_source(graded, {"accuracy": _expected_value(random_score)}))
    if most_frequent is not None:
        by_usual = _expected_value(lambda question: majority_score(question, most_frequent, relative_tolerance))
        metrics |= _add_prefix("baseline/majority/", _measure_by_source(graded, {"accuracy": by_usual}))
    return metrics


def grade_answers(
    questions: Sequence[Question], records: Sequence[AnswerRecord], relative_tolerance: float = 0.0
) -> list[GradedRecord]:
    """Grade the answers that were given with the context."""
    pairs = zip(questions, records, strict=True)
    return [
        GradedRecord(item, record, record.whole, grade(item, record.whole, relative_tolerance))
        for item, record in pairs
    ]


def unique_by_sample(records: Iterable[AnswerRecord]) -> list[AnswerRecord]:
    """Sort records by sample and remove duplicates: the ranks of a tensor-parallel group read the same batches."""
    unique: dict[int, AnswerRecord] = {}
    for record in records:
        unique.setdefault(record.sample, record)
    return [unique[sample] for sample in sorted(unique)]


def _measure_by_source(items: Sequence[GradedRecord], measures: Mapping[str, Measure]) -> dict[str, MetricEstimate]:
    """Compute each measure over all questions, and over the questions of each evidence source."""
    groups = {source: [item for item in items if item.question.source == source] for source in SOURCES}
    parts = {"": items, **{f"{source}/": group for source, group in groups.items() if group}}
    measured = (
        (prefix + name, measure(group)) for name, measure in measures.items() for prefix, group in parts.items()
    )
    return {name: metric for name, metric in measured if metric is not None}


def _add_prefix(prefix: str, found: Mapping[str, MetricEstimate]) -> dict[str, MetricEstimate]:
    return {prefix + name: metric for name, metric in found.items()}


def _mean(points: Iterable[float | None]) -> MetricEstimate | None:
    scores = [point for point in points if point is not None]
    return mean(scores) if scores else None


def _accuracy(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    return _mean(item.grade.right for item in items)


def _choice_accuracy(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    choices = [item for item in items if item.question.options]
    return _mean(item.grade.right for item in choices) if len(choices) < len(items) else None


def _balanced_accuracy(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    pairs = [
        (item.question.right, item.question.right if item.grade.right else item.given.chosen)
        for item in items
        if item.question.right is not None
    ]
    right, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return MetricEstimate(balanced_accuracy(right, predicted), len(pairs)) if pairs else None


def _points(name: str) -> Measure:
    return lambda items: _mean(item.grade.measures.get(name) for item in items)


def _abstention_f1(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    graded = [item for item in items if item.grade.right is not None]
    unanswerable = [is_unanswerable(item.question) for item in graded]
    if len(set(unanswerable)) < 2:
        return None
    return MetricEstimate(abstention_f1(unanswerable, [item.grade.abstained for item in graded]), len(graded))


def _calibration_error(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    confidences = [(item.given.confidence, item.grade.right) for item in items if item.grade.right is not None]
    if not confidences:
        return None
    invalid = [item for item in items if item.grade.right is not None and not math.isfinite(item.given.confidence)]
    if invalid:
        first = invalid[0]
        raise ValueError(
            f"sample {first.record.sample} (question {first.question.id}, document {first.question.document}): the "
            f"confidence of its answer is {first.given.confidence}, as of {len(invalid)} of {len(confidences)} "
            "answers: the model has diverged, or overflows in 16 bits. Take an earlier checkpoint, or train with a "
            "lower learning rate or with trainer.precision bf16-mixed or 32-true"
        )
    return MetricEstimate(
        calibration_error([confidence for confidence, _ in confidences], [right for _, right in confidences]),
        len(confidences),
    )


def _loss(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    terms = sum(item.given.terms for item in items)
    count = sum(item.given.terms > 0 for item in items)
    return MetricEstimate(math.fsum(item.given.loss for item in items) / terms, count) if terms else None


def _perplexity(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    loss = _loss(items)
    # exp overflows a float64 above 709.
    return None if loss is None else loss._replace(value=math.exp(min(loss.value, 700.0)))


def _page_recall(first: int) -> Measure:
    return lambda items: _mean(
        page_recall(item.record.ranked, item.question.evidence_pages, first)
        for item in items
        if item.question.evidence_pages
    )


def _context_recall(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    return _mean(
        page_recall(item.record.pages, item.question.evidence_pages, len(item.record.pages))
        for item in items
        if item.question.evidence_pages
    )


def _evidence_page_accuracy(items: Sequence[GradedRecord]) -> MetricEstimate | None:
    return _mean(
        is_evidence_page(evidence.page, item.question.evidence_pages)
        for item in items
        if item.question.evidence_pages and (evidence := strongest_evidence(item.record)) is not None
    )


def _expected_value(points: Callable[[Question], float | None]) -> Measure:
    """Return the measure of a baseline. It has no interval, as it is an expected value."""

    def measure(items: Sequence[GradedRecord]) -> MetricEstimate | None:
        found = _mean(points(item.question) for item in items)
        return None if found is None else MetricEstimate(found.value, found.questions)

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
