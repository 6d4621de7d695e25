"""Parses the JSON of a visitor's question, within limits."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from commands.answers.answer_service import InputField, PickedValue, Turn, UploadedFile, UserInputError, UserQuestion

MAX_TEXT_LENGTH = 4000
"""Characters of a text or question."""

MAX_TURNS = 20

_FORM = "expected the JSON object that the page sends"


def parse_user_question(
    body: bytes, fields: Mapping[str, InputField], file: Callable[[str], UploadedFile]
) -> UserQuestion:
    """Return the question of a request.

    Args:
        body: `{"values": {field: value}, "turns": [[question, answer], ...]}`. A value is a text; of files
            `[{"file": identifier}, ...]`; of picked values `[{"value": value, "time": time}, ...]`. A turn of compared
            runs has the answer of each.
        fields: fields of the page by name.
        file: returns a file by its identifier.

    Raises:
        UserInputError: the body has another form, or a value exceeds a limit.
    """
    try:
        content = json.loads(body)
        values, turns = content["values"], content.get("turns", [])
        if not isinstance(values, dict) or not isinstance(turns, list) or len(turns) > MAX_TURNS:
            raise TypeError
        texts, files, picked = {}, {}, {}
        for name, value in values.items():
            field = fields[name]
            if field.kind in ("text", "choice", "time"):
                texts[name] = _require_text(value, field.label)
            elif len(value) > field.max_count:
                raise UserInputError(f"{field.label}: found {len(value)}, expected at most {field.max_count}")
            elif field.kind == "pick":
                picked[name] = [_read_picked(item, field.label) for item in value]
            else:
                files[name] = [file(str(item["file"])) for item in value]
        return UserQuestion(texts, files, picked, [_turn(turn) for turn in turns])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # UserInputError is a ValueError; its message is for the visitor as it is.
        if isinstance(error, UserInputError):
            raise
        raise UserInputError(f"the question cannot be read; {_FORM}") from error


def _require_text(value: object, label: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{label}: found {type(value).__name__}")
    if len(value) > MAX_TEXT_LENGTH:
        raise UserInputError(f"{label}: found {len(value):,} characters, expected at most {MAX_TEXT_LENGTH:,}")
    return value


def _read_picked(item: Any, label: str) -> PickedValue:
    return PickedValue(_require_text(item["value"], label), _require_text(item.get("time", ""), label))


def _turn(turn: Any) -> Turn:
    question, answer, *others = turn
    if not all(isinstance(text, str) for text in (answer, *others)):
        raise TypeError("conversation: the answer is not text")
    # Answers are the model's; the size of the body is limited.
    return Turn(_require_text(question, "conversation"), answer, tuple(others))
