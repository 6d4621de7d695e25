"""Reports answers, each with its page and the marked evidence, for a test or a prediction."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.grading.grade import Grade, grade
from datamodules.document_qa.grading.page_recall import strongest_evidence
from datamodules.document_qa.reports.embedded_page_images import PageImages
from datamodules.document_qa.reports.prediction_record import shares
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import SOURCES, Question
from datamodules.multimodal.reports.html_report import ANSWERS, outcome_title, write_report
from engine.data.errors import BadSampleError
from engine.statistics.confidence_intervals import MetricEstimate

PAGES = Path(__file__).parents[1] / "pages"

SHOWN = 1000
"""Largest number of answers in a report; its metrics include all answers."""

_DIGITS = 5
_PLAIN_NUMBERS = ("loss", "perplexity")
_BASELINES = {"question_only": "question only", "random": "random choice", "majority": "most frequent answer"}


class QuestionsWithPages(Protocol):
    """The part of a QuestionSet that a report needs. If `differs` is true, documents of samples differ in content."""

    def questions(self, epoch: int, index: int) -> Sequence[Question]:
        """Return the questions of a sample; see QuestionSet."""
        ...

    def document(self, epoch: int, index: int) -> Document:
        """Return the document of a sample; see QuestionSet."""
        ...


def write_answers_report(
    folder: Path,
    stem: str,
    title: str,
    question_set: QuestionsWithPages,
    records: Sequence[AnswerRecord],
    metrics: Mapping[str, MetricEstimate],
    about: Mapping[str, str],
    unanswered: Mapping[int, str] | None = None,
) -> Path:
    """Write `STEM.html` and `.json` into a folder, with the first answers and, within limits, their pages.

    Args:
        folder: target folder; created if necessary.
        stem: stem of the file names.
        title: title of the page.
        question_set: the questions, with their documents.
        records: the answers, in the order of their samples.
        metrics: metrics of all answers; empty if no right answer is known.
        about: properties such as run and checkpoint, shown in this order at the top.
        unanswered: {sample: reason} of skipped samples.

    Returns:
        Path of the HTML file.

    Raises:
        OSError: the files cannot be written; an older report is kept.
    """
    skipped = unanswered or {}
    samples = sorted([*(record.sample for record in records), *skipped])[:SHOWN]
    record_by_sample, pictures = {record.sample: record for record in records}, PageImages()
    shown = [_record(question_set, sample, record_by_sample.get(sample), skipped, pictures) for sample in samples]
    total = len(records) + len(skipped)
    # Without a known right answer no metric counts a question.
    shown_metrics = metrics if any(metric.questions for metric in metrics.values()) else {}
    content = {
        "title": title,
        "about": {**about, "answers": _how_many(len(shown), total, bool(shown_metrics))},
        "sources": ["all", *_sources(shown_metrics)] if shown_metrics else [],
        "metrics": _metric_rows(shown_metrics),
        "records": shown,
        "pictures": pictures.content(),
    }
    scripts, styles = [ANSWERS, PAGES / "answers_report.js"], [PAGES / "answers_report.css"]
    return write_report(folder, stem, title, _round_numbers(content), scripts, styles)


def _record(
    question_set: QuestionsWithPages,
    sample: int,
    record: AnswerRecord | None,
    skipped: Mapping[int, str],
    pictures: PageImages,
) -> dict[str, Any]:
    """Return the JSON content of a sample; of a skipped sample, the reason."""
    if record is None:
        return {"sample": sample, "task": "skipped", "why": skipped[sample], "errors": None}
    (question,), document = question_set.questions(0, sample), question_set.document(0, sample)
    found, blind = grade(question, record.whole), record.question_only
    evidence = strongest_evidence(record)
    return {
        "sample": sample,
        "id": question.id,
        "task": question.source or question.answer_type or "",
        "document": question.document,
        "question": question.question,
        "options": list(question.options),
        "shares": shares(record.whole.options) if record.whole.options else [],
        "chosen": record.whole.chosen,
        "right": question.right,
        "truth": question.answer,
        "also": list(question.also_right),
        "answer": record.whole.text,
        "confidence": record.whole.confidence,
        "abstained": found.abstained,
        "measures": {_title(name): points for name, points in found.measures.items()},
        "errors": _errors(found),
        "blind": None if blind is None else question.options[blind.chosen] if blind.options else blind.text,
        "blind_errors": None if blind is None else _errors(grade(question, blind)),
        "evidence_pages": list(question.evidence_pages),
        "evidence": None if evidence is None else evidence._asdict(),
        "pages": list(record.pages),
        "ranked": list(record.ranked[:10]),
        "pictures": _pictures(question, record, document, pictures, bool(getattr(question_set, "differs", False))),
    }


def _pictures(
    question: Question, record: AnswerRecord, document: Document, images: PageImages, differs: bool
) -> list[dict[str, Any]]:
    """Return at most two pages: of the strongest evidence and of the right answer; otherwise the best-ranked page."""
    evidence = strongest_evidence(record)
    pages = [] if evidence is None else [evidence.page]
    if not set(pages) & set(question.evidence_pages):
        pages += question.evidence_pages[:1]
    if not pages:
        pages = [page for page in record.ranked if page in record.pages][:1] or list(record.pages[:1])
    try:
        keys = {page: images.add(document, page, str(record.sample) if differs else "") for page in pages}
    except (BadSampleError, OSError, ValueError):
        return []  # a missing image must not prevent the report
    return [{"page": page, "key": key} for page, key in keys.items() if key is not None]


def _errors(found: Grade) -> list[str] | None:
    return None if found.right is None else [] if found.right >= 1 else ["answer"]


def _sources(metrics: Mapping[str, MetricEstimate]) -> list[str]:
    return [source for source in SOURCES if f"{source}/accuracy" in metrics]


def _metric_rows(metrics: Mapping[str, MetricEstimate]) -> list[dict[str, Any]]:
    """Return rows of measures, with cells for all questions and for each source, including baseline accuracies."""
    columns = ["", *(f"{source}/" for source in _sources(metrics))]
    names = [name for name in metrics if "/" not in name]
    rows = [(_title(name), [name_of + name for name_of in columns], name not in _PLAIN_NUMBERS) for name in names]
    baselines = [
        (f"accuracy, {title}", [f"baseline/{name}/{column}accuracy" for column in columns], True)
        for name, title in _BASELINES.items()
        if f"baseline/{name}/accuracy" in metrics
    ]
    cells = {name: metric._asdict() for name, metric in metrics.items()}
    return [
        {"name": name, "percent": percent, "cells": [cells.get(key) for key in keys]}
        for name, keys, percent in [*rows[:1], *baselines, *rows[1:]]
    ]


def _round_numbers(value: object) -> Any:
    """Round numbers to digits that do not depend on the composition of batches."""
    if isinstance(value, Mapping):
        return {key: _round_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round_numbers(item) for item in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def _title(measure: str) -> str:
    return outcome_title(measure).replace("f1", "F1").replace("anls", "ANLS")


def _how_many(shown: int, total: int, graded: bool) -> str:
    if shown == total:
        return f"{total:,}"
    return f"the first {shown:,} of {total:,}" + ("; the metrics include all" if graded else "")
