"""The questions of MP-DocVQA (Tito, Karatzas and Valveny, "Hierarchical multimodal transformers for Multi-Page DocVQA",
Pattern Recognition 2023), as they are published: documents are pictures of pages, named by their ids."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datamodules.document_qa.question import Question
from datamodules.document_qa.questions.answer_types import answer_type_of
from datamodules.document_qa.questions.question_record import document_of, identifier, shown, text_of


def is_mp_docvqa(whole: Any) -> bool:
    """Whether a file's JSON looks like it."""
    return isinstance(whole, dict) and isinstance(whole.get("data"), list)


def read_mp_docvqa(
    whole: Mapping[str, Any], path: Path
) -> tuple[list[Question], dict[str, tuple[tuple[str, ...], str]]]:
    """The questions; and {name: (page ids, doc_id)} of the documents.

    Of long documents the set shows each question another range of pages. Each range is then a document of its own:
    the questions are asked of what they were made for.

    Raises:
        ValueError: names file and record (from 0) of what cannot be used.
    """
    found = [_record(record, f"{path}, record {number}") for number, record in enumerate(whole["data"])]
    ranges: dict[str, set[tuple[str, ...]]] = {}
    for question, pages in found:
        ranges.setdefault(question.document, set()).add(pages)
    questions, documents = [], {}
    for question, pages in found:
        whole_document = len(ranges[question.document]) == 1
        name = question.document if whole_document else f"{question.document} ({pages[0]} to {pages[-1]})"
        if documents.setdefault(name, (pages, question.document))[0] != pages:
            raise ValueError(f"{question.where}: page_ids differ from those of another question from the same page on")
        questions.append(question._replace(document=name))
    return questions, documents


def _record(record: Any, where: str) -> tuple[Question, tuple[str, ...]]:
    try:
        if not isinstance(record, dict):
            raise ValueError(f"found {type(record).__name__}, expected an object with questionId, question, doc_id")
        pages = _page_ids(record.get("page_ids"))
        answers = _answers(record.get("answers"))
        evidence = record.get("answer_page_idx")
        if evidence is not None and (
            isinstance(evidence, bool) or not isinstance(evidence, int) or not 0 <= evidence < len(pages)
        ):
            raise ValueError(f"answer_page_idx: found {shown(evidence)}, expected 0 to {len(pages) - 1}")
        return Question(
            id=identifier(record.get("questionId")),
            question=text_of("question", record.get("question")),
            document=document_of(record.get("doc_id")),
            answer=answers[0] if answers else None,
            answer_type=answer_type_of(answers[0]) if answers else None,
            evidence_pages=() if evidence is None else (evidence + 1,),
            where=where,
            also_right=answers[1:],
        ), pages
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _page_ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"page_ids: found {shown(value)}, expected a list of the pages' names")
    return tuple(document_of(text_of("page_ids", page)) for page in value)


def _answers(value: Any) -> tuple[str, ...]:
    answers = [] if value is None else value
    if not isinstance(answers, list):
        raise ValueError(f"answers: found {shown(value)}, expected a list of texts")
    return tuple(dict.fromkeys(text_of("answers", answer) for answer in answers))
