"""Reads MP-DocVQA in its published format, in which documents are page images with ids.

Tito, Karatzas and Valveny, "Hierarchical multimodal transformers for Multi-Page DocVQA", Pattern Recognition 2023.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datamodules.document_qa.questions.answer_types import infer_answer_type
from datamodules.document_qa.questions.question_record import (
    format_value,
    parse_document_name,
    parse_id,
    parse_text_field,
    with_location,
)
from datamodules.document_qa.types.question import Question
from engine.number_check import is_integer


def is_mp_docvqa(content: object) -> bool:
    """Return whether JSON content has the format of MP-DocVQA."""
    return isinstance(content, dict) and isinstance(content.get("data"), list)


def read_mp_docvqa(
    content: Mapping[str, Any], path: Path
) -> tuple[list[Question], dict[str, tuple[tuple[str, ...], str]]]:
    """Read the questions, and {name: (page ids, doc_id)} of their documents.

    For long documents, MP-DocVQA gives each question a range of pages. Each range becomes a document of its own.

    Raises:
        ValueError: a record is invalid; the message names file and record (from 0).
    """
    records = [_record(record, f"{path}, record {number}") for number, record in enumerate(content["data"])]
    ranges: dict[str, set[tuple[str, ...]]] = {}
    for question, pages in records:
        ranges.setdefault(question.document, set()).add(pages)
    questions: list[Question] = []
    documents: dict[str, tuple[tuple[str, ...], str]] = {}
    for question, pages in records:
        whole_document = len(ranges[question.document]) == 1
        name = question.document if whole_document else f"{question.document} ({pages[0]} to {pages[-1]})"
        if documents.setdefault(name, (pages, question.document))[0] != pages:
            raise ValueError(f"{question.where}: page_ids differ from another question's with the same first page")
        questions.append(question._replace(document=name))
    return questions, documents


def _record(record: object, where: str) -> tuple[Question, tuple[str, ...]]:
    try:
        if not isinstance(record, dict):
            raise ValueError(f"found {type(record).__name__}, expected an object with questionId, question, doc_id")
        pages = _page_ids(record.get("page_ids"))
        answers = _answers(record.get("answers"))
        evidence = record.get("answer_page_idx")
        if evidence is not None and (not is_integer(evidence) or not 0 <= evidence < len(pages)):
            raise ValueError(f"answer_page_idx: found {format_value(evidence)}, expected 0 to {len(pages) - 1}")
        return Question(
            id=parse_id(record.get("questionId")),
            question=parse_text_field("question", record.get("question")),
            document=parse_document_name(record.get("doc_id")),
            answer=answers[0] if answers else None,
            answer_type=infer_answer_type(answers[0]) if answers else None,
            evidence_pages=() if evidence is None else (evidence + 1,),
            where=where,
            also_right=answers[1:],
        ), pages
    except ValueError as error:
        raise with_location(where, error) from error


def _page_ids(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"page_ids: found {format_value(value)}, expected a list of page names")
    return tuple(parse_document_name(parse_text_field("page_ids", page)) for page in value)


def _answers(value: object) -> tuple[str, ...]:
    answers = [] if value is None else value
    if not isinstance(answers, list):
        raise ValueError(f"answers: found {format_value(value)}, expected a list of texts")
    return tuple(dict.fromkeys(parse_text_field("answers", answer) for answer in answers))
