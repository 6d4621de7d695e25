"""Questions written down by somebody: a JSONL file with an object on each line, for `predict`."""

import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any


def read_questions(path: Path, fields: Set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of each line that is not empty; each has a `question`, which is a text.

    Args:
        path: the file, in UTF-8.
        fields: what an object may have.

    Raises:
        ValueError: names file and line of what is none of that, or says that there is nothing.
    """
    if not path.is_file():
        raise ValueError(f"data.init_args.questions: {path} is not a file; expected lines of JSON with a question")
    # Not splitlines, which also splits at characters that JSON allows in a text.
    lines = [line for line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1) if line[1].strip()]
    if not lines:
        raise ValueError(f"{path}: found no line, expected a question on each")
    for number, line in lines:
        where = f"{path}, line {number}"
        yield where, _question(line, where, fields)


def _question(line: str, where: str, fields: Set[str]) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"{where}: found {type(record).__name__}, expected an object with a question")
    if unknown := record.keys() - fields:
        raise ValueError(f"{where}: found {', '.join(sorted(unknown))}, expected {', '.join(sorted(fields))}")
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"{where}: question is {question!r}, expected a text")
    return record
