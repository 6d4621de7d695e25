"""Parses a line of questions.jsonl into a question; files of the CCKS 2025 competition have the same format."""

import difflib
import math
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath

from datamodules.document_qa.grading.abstention import is_abstention
from datamodules.document_qa.questions.answer_types import canonical_answer, infer_answer_type
from datamodules.document_qa.questions.choice_options import option_index, strip_letters
from datamodules.document_qa.types.question import ANSWER_TYPES, SOURCES, UNANSWERABLE, AnswerType, Question, Source
from engine.io.json_records import describe_names
from engine.number_check import is_integer, is_number

FIELDS = ("id", "question", "document", "options", "answer", "evidence_pages", "evidence_sources", "answer_type")
"""Known fields. Others are ignored with a warning, unless they look like a misspelled field."""

IGNORED = ("group",)
"""Fields that are ignored without a warning: the competition's files have them."""

LONGEST = 100_000
"""Largest number of characters of a text."""

LONGEST_MESSAGE = 1000
"""Largest number of characters of an error message, without file and line."""


def parse_question(record: object, where: str) -> Question:
    """Parse a line.

    Args:
        record: the line's JSON value.
        where: file and line, for messages.

    Raises:
        ValueError: the line is invalid; the message names file and line, what was found and what was expected.
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
        source = parse_evidence_source(record.get("evidence_sources"))
        return Question(
            id=parse_id(record.get("id")),
            question=parse_text_field("question", record.get("question")),
            document=parse_document_name(record.get("document")),
            options=options,
            answer=answer,
            right=right,
            answer_type="choice" if options and answer_type is None else answer_type,
            evidence_pages=parse_page_numbers(record.get("evidence_pages")),
            source="none" if source is None and answer_type == "unanswerable" else source,
            where=where,
        )
    except ValueError as error:
        raise with_location(where, error) from error


def unknown_fields(record: Mapping[str, object]) -> list[str]:
    """Return the fields of a line that are ignored, each with the known field that it may stand for."""
    unknown = [field for field in record if field not in (*FIELDS, *IGNORED)]
    return [describe_names([field]) + _known_as(field) for field in unknown]


def _known_as(field: str) -> str:
    close = difflib.get_close_matches(field.lower(), FIELDS, n=1, cutoff=0.7)
    part = next((name for name in FIELDS if field.lower() in name.split("_")), "")
    return f" (did you mean {(close or [part])[0]}?)" if close or part else ""


def with_location(where: str, error: ValueError) -> ValueError:
    """Return an error that names file and line, with a message of bounded length: fields may be long texts."""
    text = str(error)
    return ValueError(f"{where}: {text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + '...'}")


def parse_text_field(field: str, value: object) -> str:
    """Check a text field: not empty, and not too long.

    Raises:
        ValueError: the text is invalid.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field}: found {format_value(value)}, expected a text")
    if len(value) > LONGEST:
        raise ValueError(f"{field}: found {len(value):,} characters, expected at most {LONGEST:,}")
    return value.strip()


def parse_id(value: object) -> str:
    """Check a question id: text or an integer."""
    if is_integer(value):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"id: found {format_value(value)}, expected text or an integer")
    return parse_text_field("id", value)


def parse_document_name(value: object) -> str:
    """Check a document name: a path inside the folder of documents."""
    name = parse_text_field("document", value)
    # Data may be written on one operating system and read on another, so both path syntaxes are checked.
    parts = {*PurePosixPath(name).parts, *PureWindowsPath(name).parts}
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in parts or "\0" in name:
        raise ValueError(f"document: found {name!r}, expected a path inside the folder of documents, without ..")
    return name


def parse_page_numbers(value: object) -> tuple[int, ...]:
    """Check page numbers, from 1; sort them and remove duplicates."""
    pages = [] if value is None else value
    if not isinstance(pages, list) or not all(map(is_integer, pages)):
        raise ValueError(f"evidence_pages: found {format_value(value)}, expected a list of page numbers")
    if pages and min(pages) < 1:
        raise ValueError(f"evidence_pages: found {min(pages)}, expected page numbers from 1")
    return tuple(sorted(set(pages)))


def parse_evidence_source(value: object) -> Source | None:
    """Combine evidence sources to a single source; several kinds of chunks are `cross`."""
    found = [] if value is None else value if isinstance(value, list) else [value]
    for source in found:
        if source not in SOURCES:
            raise ValueError(f"evidence_sources: found {format_value(source)}, expected {', '.join(SOURCES)}")
    kinds = set(found)
    if len(kinds) < 2:
        return next(iter(kinds), None)
    if "none" in kinds:
        raise ValueError(f"evidence_sources: found none together with {', '.join(sorted(kinds - {'none'}))}")
    return "hop" if "hop" in kinds else "cross"


def format_value(value: object) -> str:
    """Format a value for a message."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def answer_as_text(value: object) -> str | None:
    """Return an answer as text; None if there is none.

    Raises:
        ValueError: the answer is neither text nor a number.
    """
    if value is None or isinstance(value, str) and not value.strip():
        return None
    if not isinstance(value, str) and not is_number(value):
        raise ValueError(f"answer: found {format_value(value)}, expected a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"answer: found {value}, expected a text or a number")
    return parse_text_field("answer", str(value))


def _options(value: object) -> tuple[tuple[str, ...], bool]:
    if value is None or value == []:
        return (), False
    if not isinstance(value, list):
        raise ValueError(f"options: found {format_value(value)}, expected a list of texts")
    return strip_letters(
        [parse_text_field("options", str(option) if is_number(option) else option) for option in value]
    )


def _answer(value: object, options: tuple[str, ...], lettered: bool) -> tuple[str | None, int | None]:
    answer = answer_as_text(value)
    if answer is None or not options:
        return answer, None
    right = option_index(answer, options, lettered)
    return options[right], right


def _answer_type(value: object, options: tuple[str, ...]) -> AnswerType | None:
    if value == "unit":
        return "number"  # every number may have a unit
    if value is not None and value not in ANSWER_TYPES:
        raise ValueError(f"answer_type: found {format_value(value)}, expected {', '.join(ANSWER_TYPES)}, unit")
    if value == "choice" and not options:
        raise ValueError("answer_type: found choice, but the question has no options")
    return value


def _open(answer: str | None, answer_type: AnswerType | None) -> tuple[str | None, AnswerType | None]:
    """Complete answer and type of an open question: each may follow from the other."""
    if answer is None:
        return UNANSWERABLE if answer_type == "unanswerable" else None, answer_type
    if answer_type == "unanswerable" and not is_abstention(answer):
        raise ValueError(f"answer: found {answer!r} with answer_type unanswerable, expected none, or {UNANSWERABLE!r}")
    return canonical_answer(answer), answer_type or infer_answer_type(answer)


def _check_spelling(record: Mapping[str, object]) -> None:
    missing = [field for field in FIELDS if field not in record]
    for field in record.keys() - set(FIELDS):
        close = difflib.get_close_matches(field.lower(), missing, n=1, cutoff=0.83)
        if close:
            raise ValueError(f"found the field {field}, expected {close[0]}")
