"""Reads questions for `predict`: a JSONL file with one object per line."""

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from engine.io.json_records import describe_names, describe_value, iterate_lines, parse_located_json

_EXPECTED = "lines of JSON, an object with a question on each"


def read_questions(path: Path, fields: Set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file and line, object) of each non-empty line. Each object has a `question`, which is a string.

    Args:
        path: the file, in UTF-8.
        fields: allowed keys of an object.

    Raises:
        ValueError: a line is invalid or the file has none; the message names file and line.
    """
    for where, record in read_objects(path, fields):
        check_question(where, record.get("question"))
        yield where, record


def read_objects(path: Path, fields: Set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file and line, object) of each non-empty line. For arguments and errors see `read_questions`."""
    require_file(path)
    number = 0
    for number, line in iterate_lines(path, _EXPECTED):
        where = f"{path}, line {number}"
        # A file with a list of all questions would otherwise be reported as invalid JSON at its first line.
        if line.lstrip()[:1] == b"[":
            raise ValueError(
                f"{where}: found list, expected an object with a question; write one object per line (JSONL)"
            )
        yield where, check_object(where, parse_located_json(where, line), fields)
    if not number:
        raise ValueError(f"{path}: found no line, expected a question on each")


def questions_path(file: str | None, content: str) -> Path:
    """Return the path of the setting `questions`.

    Args:
        file: value of the setting.
        content: what the file has, for the message.

    Raises:
        ValueError: the setting is null.
    """
    if file is None:
        raise ValueError(f"predict needs data.init_args.questions, {content}")
    return Path(file)


def require_file(path: Path) -> None:
    """Raise ValueError if there is no file of questions."""
    if not path.is_file():
        raise ValueError(f"data.init_args.questions: {path} is not a file; expected lines of JSON with a question")


def check_object(where: str, record: object, fields: Set[str]) -> dict[str, Any]:
    """Return a record, which is an object without unknown keys.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{where}: found {type(record).__name__}, expected an object with a question")
    if unknown := record.keys() - fields:
        raise ValueError(f"{where}: found {describe_names(sorted(unknown))}, expected {', '.join(sorted(fields))}")
    return record


def check_question(where: str, question: object) -> str:
    """Return a question, which is a text.

    Raises:
        ValueError: it is not, or it is empty.
    """
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"{where}: question is {describe_value(question)}, expected a text")
    return question
