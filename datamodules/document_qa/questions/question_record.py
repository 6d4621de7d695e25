"""One line of questions.jsonl as a question; also what the CCKS 2025 competition's files have on theirs."""

import difflib
import math
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from datamodules.document_qa.grading.abstention import is_abstention
from datamodules.document_qa.question import ANSWER_TYPES, SOURCES, UNANSWERABLE, AnswerType, Question, Source
from datamodules.document_qa.questions.answer_types import answer_type_of, in_its_words
from datamodules.document_qa.questions.options import place_of, without_letters

FIELDS = ("id", "question", "document", "options", "answer", "evidence_pages", "evidence_sources", "answer_type")
"""What is read of a line. Other fields are left alone (the competition has a `group`), unless one looks misspelled."""

LONGEST = 100_000
"""Characters of the longest text."""


def question_of(record: Any, where: str) -> Question:
    """
    Args:
        record: a line's JSON.
        where: file and line, for errors.

    Raises:
        ValueError: says file and line, what was found, and what was expected.
    """
    try:
        if not isinstance(record, dict):
            raise ValueError(f"found {type(record).__name__}, expected an object with {', '.join(FIELDS[:3])}")
        _check_spelling(record)
        options, lettered = _options(record.get("options"))
        answer, right = _answer(record.get("answer"), options, lettered)
        answer_type = _answer_type(record.get("answer_type"), options)
        if not options:
            answer, answer_type = _open(answer, answer_type)
        source = source_of(record.get("evidence_sources"))
        return Question(
            id=identifier(record.get("id")),
            question=text_of("question", record.get("question")),
            document=document_of(record.get("document")),
            options=options,
            answer=answer,
            right=right,
            answer_type="choice" if options and answer_type is None else answer_type,
            evidence_pages=pages_of(record.get("evidence_pages")),
            source="none" if source is None and answer_type == "unanswerable" else source,
            where=where,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def text_of(field: str, value: Any) -> str:
    """A text that says something and that every tokenizer takes.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field}: found {shown(value)}, expected a text")
    if len(value) > LONGEST:
        raise ValueError(f"{field}: found {len(value):,} characters, expected at most {LONGEST:,}")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can say half of a character
        half = f"\\u{ord(value[error.start]):04x}"
        raise ValueError(f"{field}: found half of a character, {half}, at {error.start}") from error
    return value.strip()


def identifier(value: Any) -> str:
    """A question's id: a text or a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"id: found {shown(value)}, expected a text or a whole number")
    return text_of("id", value)


def document_of(value: Any) -> str:
    """A document's name: a path in the folder of documents, and none outside of it."""
    name = text_of("document", value)
    # A data set may be written on one system and read on another: both must find the path harmless.
    parts = {*PurePosixPath(name).parts, *PureWindowsPath(name).parts}
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in parts or "\0" in name:
        raise ValueError(f"document: found {name!r}, expected a path inside the folder of documents, without ..")
    return name


def pages_of(value: Any) -> tuple[int, ...]:
    """Numbers of pages, from 1, in order, each once."""
    pages = [] if value is None else value
    if not isinstance(pages, list) or any(isinstance(page, bool) or not isinstance(page, int) for page in pages):
        raise ValueError(f"evidence_pages: found {shown(value)}, expected a list of page numbers")
    if pages and min(pages) < 1:
        raise ValueError(f"evidence_pages: found {min(pages)}, expected page numbers from 1")
    return tuple(sorted(set(pages)))


def source_of(value: Any) -> Source | None:
    """One source: of several kinds of chunks `cross`."""
    found = [] if value is None else value if isinstance(value, list) else [value]
    for source in found:
        if source not in SOURCES:
            raise ValueError(f"evidence_sources: found {shown(source)}, expected {', '.join(SOURCES)}")
    kinds = set(found)
    if len(kinds) < 2:
        return next(iter(kinds), None)
    if "none" in kinds:
        raise ValueError(f"evidence_sources: found none beside {', '.join(sorted(kinds - {'none'}))}")
    return "hop" if "hop" in kinds else "cross"


def shown(value: Any) -> str:
    """A value in a message."""
    said = "nothing" if value is None else repr(value)
    return said if len(said) <= 120 else f"{said[:117]}..."


def written(value: Any) -> str | None:
    """An answer as a text; None where there is none.

    Raises:
        ValueError: it is neither a text nor a number.
    """
    if value is None or isinstance(value, str) and not value.strip():
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"answer: found {shown(value)}, expected a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"answer: found {value}, expected a text or a number")
    return text_of("answer", str(value))


def _options(value: Any) -> tuple[tuple[str, ...], bool]:
    if value is None or value == []:
        return (), False
    if not isinstance(value, list):
        raise ValueError(f"options: found {shown(value)}, expected a list of texts")
    return without_letters([text_of("options", str(one) if _is_number(one) else one) for one in value])


def _answer(value: Any, options: tuple[str, ...], lettered: bool) -> tuple[str | None, int | None]:
    answer = written(value)
    if answer is None or not options:
        return answer, None
    right = place_of(answer, options, lettered)
    return options[right], right


def _answer_type(value: Any, options: tuple[str, ...]) -> AnswerType | None:
    if value == "unit":
        return "number"  # with a unit, which every number may have
    if value is not None and value not in ANSWER_TYPES:
        raise ValueError(f"answer_type: found {shown(value)}, expected {', '.join(ANSWER_TYPES)}, unit")
    if value == "choice" and not options:
        raise ValueError("answer_type: found choice, but the question has no options")
    return value


def _open(answer: str | None, answer_type: AnswerType | None) -> tuple[str | None, AnswerType | None]:
    """Answer and type of an open question, of which one may tell the other."""
    if answer is None:
        return UNANSWERABLE if answer_type == "unanswerable" else None, answer_type
    if answer_type == "unanswerable" and not is_abstention(answer):
        raise ValueError(f"answer: found {answer!r} of answer_type unanswerable, expected none, or {UNANSWERABLE!r}")
    return in_its_words(answer), answer_type or answer_type_of(answer)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_spelling(record: Mapping[str, Any]) -> None:
    missing = [field for field in FIELDS if field not in record]
    for field in record.keys() - set(FIELDS):
        close = difflib.get_close_matches(field.lower(), missing, n=1, cutoff=0.83)
        if close:
            raise ValueError(f"found the field {field}, expected {close[0]}")
