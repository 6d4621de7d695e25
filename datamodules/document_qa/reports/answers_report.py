"""The report on answers: each with its page, and on it what the answer rests on. Of a test, and of a prediction."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.document import Document
from datamodules.document_qa.grading.grade import Grade, grade
from datamodules.document_qa.grading.intervals import Figure
from datamodules.document_qa.grading.page_ranks import rests_on
from datamodules.document_qa.question import SOURCES, Question
from datamodules.document_qa.reports.page_pictures import PagePictures
from datamodules.document_qa.reports.prediction_line import shares
from datamodules.multimodal.report import ANSWERS, title_of, write_report
from datamodules.multimodal.unusable import UnusableSample

PAGES = Path(__file__).parents[1] / "pages"

SHOWN = 1000
"""Answers that a report shows; its figures are of all."""

_DIGITS = 5
_PLAIN_NUMBERS = ("loss", "perplexity")
_BASELINES = {"question_only": "question only", "random": "random choice", "majority": "most frequent answer"}


class QuestionsWithPages(Protocol):
    """What a report needs of a QuestionSet. With a `differs` that is true, each sample's document looks another way."""

    def questions(self, epoch: int, index: int) -> Sequence[Question]: ...

    def document(self, epoch: int, index: int) -> Document: ...


def write_answers_report(
    folder: Path,
    stem: str,
    title: str,
    asked: QuestionsWithPages,
    records: Sequence[AnswerRecord],
    figures: Mapping[str, Figure],
    about: Mapping[str, str],
    unanswered: Mapping[int, str] | None = None,
    relative_tolerance: float = 0.0,
) -> Path:
    """Writes `STEM.html` and `.json` into a folder, with the first answers and, while there is room, their pages.

    Args:
        folder: where to; is made if it is not there.
        title: of the page.
        asked: the questions, with their documents.
        records: the answers, in the order of their samples.
        figures: of all of them; empty where no right answer is known.
        about: run, checkpoint and what else says whose answers these are, shown in this order at the head.
        unanswered: {sample: why it was left out}.
        relative_tolerance: of numbers.

    Returns:
        The HTML file.

    Raises:
        OSError: the disk did not take it; an older report is left as it was.
    """
    left_out = unanswered or {}
    samples = sorted([*(record.sample for record in records), *left_out])[:SHOWN]
    of_sample, pictures = {record.sample: record for record in records}, PagePictures()
    shown = [_record(asked, one, of_sample.get(one), left_out, pictures, relative_tolerance) for one in samples]
    total = len(records) + len(left_out)
    known = figures if any(figure.questions for figure in figures.values()) else {}
    content = {
        "title": title,
        "about": {**about, "answers": _how_many(len(shown), total, bool(known))},
        "sources": ["all", *_sources(known)] if known else [],
        "figures": _table(known),
        "records": shown,
        "pictures": pictures.content(),
    }
    scripts, styles = [ANSWERS, PAGES / "answers_report.js"], [PAGES / "answers_report.css"]
    return write_report(folder, stem, title, _rounded(content), scripts, styles)


def _record(
    asked: QuestionsWithPages,
    sample: int,
    record: AnswerRecord | None,
    left_out: Mapping[int, str],
    pictures: PagePictures,
    relative_tolerance: float,
) -> dict[str, Any]:
    """What the JSON holds of a sample; of one that was left out why it was."""
    if record is None:
        return {"sample": sample, "task": "left out", "why": left_out[sample], "errors": None}
    (question,), document = asked.questions(0, sample), asked.document(0, sample)
    found, blind = grade(question, record.whole, relative_tolerance), record.question_only
    evidence = rests_on(record)
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
        "blind_errors": None if blind is None else _errors(grade(question, blind, relative_tolerance)),
        "evidence_pages": list(question.evidence_pages),
        "evidence": None if evidence is None else evidence._asdict(),
        "pages": list(record.pages),
        "ranked": list(record.ranked[:10]),
        "pictures": _pictures(question, record, document, pictures, bool(getattr(asked, "differs", False))),
    }


def _pictures(
    question: Question, record: AnswerRecord, document: Document, kept: PagePictures, differs: bool
) -> list[dict[str, Any]]:
    """At most two pages: what the answer rests on, and where the right evidence is; else what was shown first."""
    evidence = rests_on(record)
    wanted = [] if evidence is None else [evidence.page]
    if not set(wanted) & set(question.evidence_pages):
        wanted += question.evidence_pages[:1]
    if not wanted:
        wanted = [page for page in record.ranked if page in record.pages][:1] or list(record.pages[:1])
    try:
        keys = {page: kept.add(document, page, str(record.sample) if differs else "") for page in wanted}
    except (UnusableSample, OSError, ValueError):
        return []  # a report does not fail for a picture
    return [{"page": page, "key": key} for page, key in keys.items() if key is not None]


def _errors(found: Grade) -> list[str] | None:
    return None if found.right is None else [] if found.right >= 1 else ["answer"]


def _sources(figures: Mapping[str, Figure]) -> list[str]:
    return [source for source in SOURCES if f"{source}/accuracy" in figures]


def _table(figures: Mapping[str, Figure]) -> list[dict[str, Any]]:
    """A measure a row, with a cell for all questions and for those of each source; the baselines' accuracies follow."""
    columns = ["", *(f"{source}/" for source in _sources(figures))]
    names = [name for name in figures if "/" not in name]
    rows = [(_title(name), [name_of + name for name_of in columns], name not in _PLAIN_NUMBERS) for name in names]
    baselines = [
        (f"accuracy, {title}", [f"baseline/{name}/{column}accuracy" for column in columns], True)
        for name, title in _BASELINES.items()
        if f"baseline/{name}/accuracy" in figures
    ]
    cells = {name: figure._asdict() for name, figure in figures.items()}
    return [
        {"name": name, "percent": percent, "cells": [cells.get(key) for key in keys]}
        for name, keys, percent in [*rows[:1], *baselines, *rows[1:]]
    ]


def _rounded(value: Any) -> Any:
    """The same with as many digits as do not depend on which questions shared a batch."""
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def _title(measure: str) -> str:
    return title_of(measure).replace("f1", "F1").replace("anls", "ANLS")


def _how_many(shown: int, total: int, graded: bool) -> str:
    if shown == total:
        return f"{total:,}"
    return f"the first {shown:,} of {total:,}" + ("; the figures are of all" if graded else "")
