"""Reads log.jsonl and validates each line against the schema of docs/monitoring.md."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.conftest import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "deploy/monitoring/log.schema.json").read_text())
_VALIDATOR = Draft202012Validator(SCHEMA)


def log_lines(text: str | Path) -> list[dict[str, Any]]:
    """Return the log lines of a file, or of printed text.

    Raises:
        AssertionError: a line is not strict JSON, or not as the schema has it.
    """
    output = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
    return [_line(line) for line in output.splitlines()]


def events(lines: list[dict[str, Any]]) -> list[str]:
    """Return the names of the lines' events, in order."""
    return [line["fields"]["event"] for line in lines if "event" in line["fields"]]


def fields_of(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """Return the fields of each line with this event."""
    return [line["fields"] for line in lines if line["fields"].get("event") == event]


def _line(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise AssertionError(f"no JSON ({error}): {text!r}") from error
    wrong = [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(line)]
    assert not wrong, f"{'; '.join(wrong)}: {text}"
    return line


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
