"""The forms that chats are published in, made one: messages with roles, and a marker for each image.

======================================================  =====================================
turns                                                   as in
======================================================  =====================================
``{"role": "user", "content": ...}``                    minimind-v, most JSONL files
``{"from": "human", "value": ...}``                     LLaVA
``{"user": ..., "assistant": ...}``                     The Cauldron, FineVision
======================================================  =====================================

A content may also be a list of parts, ``{"type": "text", "text": ...}`` and ``{"type": "image"}``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from datamodules.multimodal.chat import ROLES, Message
from datamodules.multimodal.unusable import UnusableSample
from datamodules.vision_language.image_chat import MARKER

CHAT_FIELDS = ("messages", "conversations", "texts")
"""Where a chat may stand in a row; the first that holds one is taken."""

IMAGE_FIELDS = ("images", "image", "image_bytes")
"""Where its images may stand."""

_SPEAKERS = {"human": "user", "gpt": "assistant"} | {role: role for role in ROLES}
_ALSO_AN_IMAGE = ("image", "image_url", "input_image")


def messages_of(name: str, turns: Any) -> list[Message]:
    """A chat's messages.

    Args:
        name: file and row, for errors.
        turns: a list of turns in one of the forms above, or such a list as JSON.

    Raises:
        UnusableSample: it is none, or its turns cannot be a chat.
    """
    if isinstance(turns, str):
        try:
            turns = json.loads(turns)
        except (ValueError, RecursionError) as error:
            raise UnusableSample(f"{name}: its chat is not JSON ({error}): {turns[:80]!r}") from error
    if not isinstance(turns, list) or not turns:
        raise UnusableSample(f"{name}: its chat must be a list of at least one turn, found {_shown(turns)}")
    messages = [message for place, turn in enumerate(turns, 1) for message in _turn(f"{name}: turn {place}", turn)]
    if not messages or messages[0]["role"] == "assistant":
        raise UnusableSample(f"{name}: a chat begins with a user's or the system's text, not with the assistant's")
    for place, message in enumerate(messages, 1):
        if MARKER in message["content"] and message["role"] != "user":
            raise UnusableSample(
                f"{name}: message {place} ({message['role']}) holds {MARKER}, which belongs in a user's text"
            )
    return messages


def marked(name: str, messages: Sequence[Message], images: int) -> list[Message]:
    """The messages with a marker for each image: where there is none yet, in front of the first user's text.

    Raises:
        UnusableSample: there are markers, but not as many as images; or nobody asks about the images.
    """
    markers = sum(message["content"].count(MARKER) for message in messages)
    if markers == images:
        return list(messages)
    first = next((place for place, message in enumerate(messages) if message["role"] == "user"), None)
    if markers or first is None:
        raise UnusableSample(f"{name}: {MARKER} stands {markers} times in the user's text, but it has {images} images")
    text = f"{MARKER}\n" * images + messages[first]["content"]
    return [*messages[:first], Message(role="user", content=text), *messages[first + 1 :]]


def first_of(fields: Sequence[str], found: Mapping[str, Any]) -> str | None:
    """The first field that holds something, neither null nor an empty list; else the first that is there."""
    there = [field for field in fields if field in found]
    return next((field for field in there if found[field] not in (None, [])), there[0] if there else None)


def _turn(name: str, turn: Any) -> list[Message]:
    if isinstance(turn, dict) and {"user", "assistant"} & set(turn):
        said = [(role, turn[role]) for role in ("user", "assistant") if turn.get(role) is not None]
        return [Message(role=role, content=content_of(name, content)) for role, content in said]
    role, content = None, None
    if isinstance(turn, dict):
        role, content = (turn["from"], turn.get("value")) if "from" in turn else (turn.get("role"), turn.get("content"))
    if not isinstance(role, str) or role not in _SPEAKERS:
        expected = "{role, content}, {from, value} or {user, assistant} with " + ", ".join(_SPEAKERS)
        raise UnusableSample(f"{name}: expected {expected}; found {_shown(turn)}")
    return [Message(role=_SPEAKERS[role], content=content_of(name, content))]


def content_of(name: str, content: Any) -> str:
    """The text of a turn's content.

    Args:
        name: file and row, for errors.
        content: a text, or a list of parts.

    Raises:
        UnusableSample: it is neither, or a text that no tokenizer takes.
    """
    if isinstance(content, str):
        try:
            content.encode()
        except UnicodeEncodeError as error:  # JSON can say half of a character, which no tokenizer takes
            half = f"\\u{ord(content[error.start]):04x}"
            raise UnusableSample(f"{name}: its text holds half of a character, {half}, at {error.start}") from error
        return content
    if not isinstance(content, list):
        raise UnusableSample(f"{name}: its content must be a text, found {_shown(content)}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(content_of(name, part["text"]))
        elif kind in _ALSO_AN_IMAGE:
            texts.append(f"{MARKER}\n")
        else:
            raise UnusableSample(f"{name}: a part must be a text or an image, found {_shown(part)}")
    return "".join(texts)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)[:120]
