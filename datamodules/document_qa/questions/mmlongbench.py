"""The questions of MMLongBench-Doc (Ma et al., NeurIPS 2024 Datasets and Benchmarks), as they are published."""

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

from datamodules.document_qa.question import UNANSWERABLE, AnswerType, Question, Source
from datamodules.document_qa.questions.answer_types import answer_type_of, in_its_words
from datamodules.document_qa.questions.question_record import document_of, pages_of, shown, source_of, text_of, written

_LONGEST = 10_000
"""Characters of a list that is written as a text."""

_SOURCES: dict[str, Source] = {
    "Pure-text (Plain-text)": "text",
    "Generalized-text (Layout)": "text",
    "Table": "table",
    "Chart": "figure",
    "Figure": "figure",
}
_TYPES: dict[str, AnswerType | None] = {"Int": "number", "Float": "number", "List": "string", "Str": None, "None": None}
"""Types of answers by their format; None: the text tells."""


def is_mmlongbench(whole: Any) -> bool:
    """Whether a file's JSON looks like it."""
    return isinstance(whole, list) and bool(whole) and isinstance(whole[0], dict) and "doc_id" in whole[0]


def read_mmlongbench(whole: list[Any], path: Path) -> list[Question]:
    """
    Its questions have no ids: they are called by their document and their number among its questions, from 1.

    Raises:
        ValueError: names file and record (from 0) of what cannot be used.
    """
    questions, asked = [], Counter[str]()
    for number, record in enumerate(whole):
        question = _record(record, f"{path}, record {number}")
        asked[question.document] += 1
        questions.append(question._replace(id=f"{question.document}#{asked[question.document]}"))
    return questions


def _record(record: Any, where: str) -> Question:
    try:
        if not isinstance(record, dict):
            raise ValueError(f"found {type(record).__name__}, expected an object with doc_id and question")
        form = record.get("answer_format")
        if form not in (None, *_TYPES):
            raise ValueError(f"answer_format: found {shown(form)}, expected {', '.join(_TYPES)}")
        answer = _answer(record.get("answer"), form)
        answer_type = _answer_type(answer, form)
        source = _source(record.get("evidence_sources"))
        return Question(
            id="",
            question=text_of("question", record.get("question")),
            document=document_of(record.get("doc_id")),
            answer=answer,
            answer_type=answer_type,
            evidence_pages=pages_of(_list("evidence_pages", record.get("evidence_pages"))),
            source="none" if answer_type == "unanswerable" else source,
            where=where,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _answer(value: Any, form: str | None) -> str | None:
    if form == "List":
        return ", ".join(filter(None, map(written, _list("answer", value)))) or None
    answer = written(value)
    return None if answer is None else in_its_words(answer)


def _answer_type(answer: str | None, form: str | None) -> AnswerType | None:
    if answer is None:
        return None
    return "unanswerable" if answer == UNANSWERABLE else _TYPES.get(str(form)) or answer_type_of(answer)


def _source(value: Any) -> Source | None:
    found = _list("evidence_sources", value)
    for source in found:
        if not isinstance(source, str) or source not in _SOURCES:
            raise ValueError(f"evidence_sources: found {shown(source)}, expected {', '.join(_SOURCES)}")
    return source_of([_SOURCES[source] for source in found])


def _list(field: str, value: Any) -> list[Any]:
    """A list, which may be written as a text, in Python's form or in JSON's.

    Raises:
        ValueError: it is none, or too long.
    """
    if value is None or isinstance(value, list):
        return value or []
    try:
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise ValueError("not a text, or too long")
        try:
            found = json.loads(value)
        except ValueError:
            found = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f'{field}: found {shown(value)}, expected a list such as "[3, 5]"') from error
    if not isinstance(found, list):
        raise ValueError(f'{field}: found {shown(value)}, expected a list such as "[3, 5]"')
    return found
