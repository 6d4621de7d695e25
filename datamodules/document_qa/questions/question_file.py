"""Reads question files in all supported formats."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datamodules.document_qa.questions.mmlongbench import is_mmlongbench, read_mmlongbench
from datamodules.document_qa.questions.mp_docvqa import is_mp_docvqa, read_mp_docvqa
from datamodules.document_qa.questions.question_record import FIELDS, format_value, parse_question, unknown_fields
from datamodules.document_qa.types.question import Question
from engine.io.json_records import (
    check_text_file,
    describe_line,
    describe_names,
    describe_undecodable,
    iterate_lines,
    parse_json,
)

log = logging.getLogger("lockstep")

QuestionFormat = Literal["auto", "questions", "mp_docvqa", "mmlongbench"]

LARGEST = 2**30
"""Largest size of a file of JSON lines, in bytes."""

LARGEST_VALUE = 2**28
"""Largest size of a file with a single JSON value, in bytes; parsed, it takes ten times as much memory."""

_EXPECTED = "an object per line"


class DocumentReference(NamedTuple):
    """A document as a question file names it."""

    name: str
    images: tuple[str, ...] = ()  # names of its page images without extension; empty: `name` is a file or folder
    origin: str = ""  # the document that it is a part of; all parts belong to the same split


class QuestionFile(NamedTuple):
    """The questions of a file, in its order."""

    path: Path
    questions: tuple[Question, ...]
    ids: tuple[str | int, ...]  # as in the file
    documents: Mapping[str, DocumentReference]  # by name


def read_question_file(path: str | Path, format: QuestionFormat = "auto") -> QuestionFile:
    """Read a question file.

    Args:
        path: the file, in UTF-8.
        format: `questions` (a JSON object per line, see question_record), `mp_docvqa` (the JSON of MP-DocVQA),
            `mmlongbench` (the JSON of MMLongBench-Doc); `auto` detects the format.

    Raises:
        ValueError: the file has no question, or an invalid question; the message names file and line (or record).
        OSError: the file cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the question file does not exist")
    size = path.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{path}: found {size:,} bytes, expected at most {LARGEST:,}")
    content = _read_whole(path) if size <= LARGEST_VALUE else _Invalid(f"more than {LARGEST_VALUE:,} bytes", 1, False)
    read = _READERS[format] if format != "auto" else _choose_reader(content, path)
    ids, questions, documents = read(content, path)
    if not questions:
        raise ValueError(f"{path}: found no questions")
    _check_ids(questions)
    return QuestionFile(path, tuple(questions), tuple(ids), documents)


class _Invalid(NamedTuple):
    """What is wrong with a file that is not a single JSON value."""

    problem: str
    line: int  # where the parser stopped, from 1; 1 if the first value is valid
    is_list: bool  # whether the file begins a list
    is_blank: bool = False  # whether it has blank lines only


_Read = tuple[Sequence[str | int], Sequence[Question], Mapping[str, DocumentReference]]
_Reader = Callable[[Any, Path], _Read]


def _json_lines(content: object, path: Path) -> _Read:
    ids, questions = [], []
    unknown: dict[str, int] = {}
    for number, line in iterate_lines(path, _EXPECTED):
        where = f"{path}, line {number}"
        try:
            record = parse_json(line)
        except ValueError as error:
            raise ValueError(
                f"{where}: invalid JSON ({error}) in {describe_line(line)}; expected {_EXPECTED}"
            ) from error
        questions.append(parse_question(record, where))
        ids.append(record["id"])
        for field in unknown_fields(record):
            unknown.setdefault(field, number)
    _warn_of_unknown(unknown, path)
    names = dict.fromkeys(question.document for question in questions)
    return ids, questions, {name: DocumentReference(name) for name in names}


def _warn_of_unknown(fields: Mapping[str, int], path: Path) -> None:
    """Warn of fields that are ignored, given with the number of their first line."""
    if fields:
        log.warning(
            "%s, line %d: ignored %s; known fields are %s",
            path, min(fields.values()), describe_names(fields), ", ".join(FIELDS),
        )  # fmt: skip


def _mp_docvqa(content: Any, path: Path) -> _Read:
    if not is_mp_docvqa(content):
        found = f"; found invalid JSON: {content.problem}" if isinstance(content, _Invalid) else ""
        raise ValueError(f'{path}: expected the JSON of MP-DocVQA: an object with "data", a list of questions{found}')
    questions, pages = read_mp_docvqa(content, path)
    ids = [record["questionId"] for record in content["data"]]
    return ids, questions, {name: DocumentReference(name, *document) for name, document in pages.items()}


def _mmlongbench(content: object, path: Path) -> _Read:
    if not isinstance(content, list):
        found = f"; found invalid JSON: {content.problem}" if isinstance(content, _Invalid) else ""
        raise ValueError(f"{path}: expected the JSON of MMLongBench-Doc: a list of questions with doc_id{found}")
    questions = read_mmlongbench(content, path)
    names = dict.fromkeys(question.document for question in questions)
    return [question.id for question in questions], questions, {name: DocumentReference(name) for name in names}


_READERS: dict[str, _Reader] = {"questions": _json_lines, "mp_docvqa": _mp_docvqa, "mmlongbench": _mmlongbench}


def _read_whole(path: Path) -> Any:
    """Return the content of a file with a single JSON value; otherwise an _Invalid.

    Raises:
        ValueError: the file is not UTF-8.
    """
    data = path.read_bytes()
    check_text_file(data[:16], path, _EXPECTED)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: {describe_undecodable(error)} of the file; expected UTF-8") from error
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        # "Extra data" follows a first value that is valid: the file may be JSON lines.
        line = 1 if error.msg.startswith("Extra data") else error.lineno
        return _Invalid(str(error), line, text[:64].lstrip()[:1] == "[", text.isspace())
    except ValueError as error:
        return _Invalid(str(error), 1, text[:64].lstrip()[:1] == "[")


def _choose_reader(content: object, path: Path) -> _Reader:
    if is_mp_docvqa(content):
        return _mp_docvqa
    if is_mmlongbench(content):
        return _mmlongbench
    # A cut first line of JSON lines fails in line 2.
    if isinstance(content, _Invalid) and not content.is_blank and (content.is_list or content.line > 2):
        raise ValueError(
            f"{path}, line {content.line}: invalid JSON ({content.problem}); expected an object per line, or the JSON "
            "of MP-DocVQA or MMLongBench-Doc"
        )
    if isinstance(content, list):
        raise ValueError(
            f"{path}: found a JSON list without doc_id; expected an object per line, or MMLongBench-Doc's list"
        )
    return _json_lines


def _check_ids(questions: Sequence[Question]) -> None:
    seen: dict[str, str] = {}
    for question in questions:
        if question.id in seen:
            raise ValueError(
                f"{question.where}: the id {format_value(question.id)} is already used by {seen[question.id]}"
            )
        seen[question.id] = question.where
