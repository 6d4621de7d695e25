"""Reads MMLongBench-Doc (Ma et al., NeurIPS 2024 Datasets and Benchmarks) in its published format."""

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

from datamodules.document_qa.questions.answer_types import canonical_answer, infer_answer_type
from datamodules.document_qa.questions.question_record import (
    answer_as_text,
    format_value,
    parse_document_name,
    parse_evidence_source,
    parse_page_numbers,
    parse_text_field,
    with_location,
)
from datamodules.document_qa.types.question import UNANSWERABLE, AnswerType, Question, Source

_LONGEST = 10_000
"""Largest number of characters of a list that is written as text."""

_SOURCES: dict[str, Source] = {
    "Pure-text (Plain-text)": "text",
    "Generalized-text (Layout)": "text",
    "Table": "table",
    "Chart": "figure",
    "Figure": "figure",
}
_TYPES: dict[str, AnswerType | None] = {"Int": "number", "Float": "number", "List": "string", "Str": None, "None": None}
"""Answer types by answer format; None: inferred from the answer."""


def is_mmlongbench(content: object) -> bool:
    """Return whether JSON content has the format of MMLongBench-Doc."""
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict) and "doc_id" in content[0]


def read_mmlongbench(records: list[Any], path: Path) -> list[Question]:
    """Read all questions. As they have no ids, their id is the document and their number within it, from 1.

    Raises:
        ValueError: a record is invalid; the message names file and record (from 0).
    """
    questions, asked = [], Counter[str]()
    for number, record in enumerate(records):
        question = _record(record, f"{path}, record {number}")
        asked[question.document] += 1
        questions.append(question._replace(id=f"{question.document}#{asked[question.document]}"))
    return questions


def _record(record: object, where: str) -> Question:
    try:
        if not isinstance(record, dict):
            raise ValueError(f"found {type(record).__name__}, expected an object with doc_id and question")
        form = record.get("answer_format")
        if form not in (None, *_TYPES):
            raise ValueError(f"answer_format: found {format_value(form)}, expected {', '.join(_TYPES)}")
        answer = _answer(record.get("answer"), form)
        answer_type = _answer_type(answer, form)
        source = _source(record.get("evidence_sources"))
        return Question(
            id="",
            question=parse_text_field("question", record.get("question")),
            document=parse_document_name(record.get("doc_id")),
            answer=answer,
            answer_type=answer_type,
            evidence_pages=parse_page_numbers(_list("evidence_pages", record.get("evidence_pages"))),
            source="none" if answer_type == "unanswerable" else source,
            where=where,
        )
    except ValueError as error:
        raise with_location(where, error) from error


def _answer(value: object, form: str | None) -> str | None:
    if form == "List":
        return ", ".join(filter(None, map(answer_as_text, _list("answer", value)))) or None
    answer = answer_as_text(value)
    return None if answer is None else canonical_answer(answer)


def _answer_type(answer: str | None, form: str | None) -> AnswerType | None:
    if answer is None:
        return None
    return "unanswerable" if answer == UNANSWERABLE else _TYPES.get(str(form)) or infer_answer_type(answer)


def _source(value: object) -> Source | None:
    found = _list("evidence_sources", value)
    for source in found:
        if not isinstance(source, str) or source not in _SOURCES:
            raise ValueError(f"evidence_sources: found {format_value(source)}, expected {', '.join(_SOURCES)}")
    return parse_evidence_source([_SOURCES[source] for source in found])


def _list(field: str, value: object) -> list[Any]:
    """Return a list, which may be written as text in Python's or JSON's syntax.

    Raises:
        ValueError: the value is not a list, or is too long.
    """
    if value is None or isinstance(value, list):
        return value or []
    try:
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise ValueError("not text, or too long")
        try:
            found = json.loads(value)
        except ValueError:
            # A list in Python's syntax, with single quotes. literal_eval evaluates literals alone and calls nothing.
            found = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f'{field}: found {format_value(value)}, expected a list such as "[3, 5]"') from error
    if not isinstance(found, list):
        raise ValueError(f'{field}: found {format_value(value)}, expected a list such as "[3, 5]"')
    return found
