"""Chats written down: a file with one chat a line, in the form that chat data sets are published in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.multimodal.chat import ROLES, Message


class Example(NamedTuple):
    """One line of a file of chats."""

    name: str  # file and line, for errors
    messages: list[Message]
    fields: dict[str, Any]  # what else stands on the line: a path, an id, numbers


def read_examples(path: str | Path) -> Iterator[Example]:
    """The chats of a JSONL file: `{"messages": [{"role": "user", "content": "..."}, ...], ...}`; empty lines are none.

    Raises:
        ValueError: a line is not such a chat; file and line are named.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _example(f"{path}:{number}", line)


def _example(name: str, line: bytes) -> Example:
    try:
        fields = json.loads(line)
    except ValueError as error:  # UnicodeDecodeError is one, too
        raise ValueError(f"{name}: not a line of JSON ({error}): {line[:80]!r}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("messages"), list) or not fields["messages"]:
        found = f"keys {', '.join(fields) or 'none'}" if isinstance(fields, dict) else type(fields).__name__
        raise ValueError(f'{name}: expected an object with a list "messages" of at least one, found {found}')
    messages = fields.pop("messages")
    for place, message in enumerate(messages, 1):
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(
                f"{name}: message {place} must have a role ({', '.join(ROLES)}) and a content, which is a text; "
                f"found {json.dumps(message, ensure_ascii=False)[:120]}"
            )
    return Example(name, [Message(role=message["role"], content=message["content"]) for message in messages], fields)
