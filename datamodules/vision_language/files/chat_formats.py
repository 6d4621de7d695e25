"""Converts the published formats of chats to messages with roles and one marker per image.

======================================================  =====================================
format of a turn                                        used by
======================================================  =====================================
``{"role": "user", "content": ...}``                    minimind-v, most JSONL files
``{"from": "human", "value": ...}``                     LLaVA
``{"user": ..., "assistant": ...}``                     The Cauldron, FineVision
======================================================  =====================================

A content may also be a list of parts, `{"type": "text", "text": ...}` and `{"type": "image"}`. An image part may
name its image, as `{"type": "image", "image": "a.png"}`.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datamodules.multimodal.text.chat_encoder import ROLES, Message
from datamodules.vision_language.chat_file import MARKER
from engine.data.errors import BadSampleError
from engine.io.json_records import parse_json

CHAT_FIELDS = ("messages", "conversations", "texts")
"""Fields of a row that may hold the chat; the first with a value is used."""

IMAGE_FIELDS = ("images", "image", "image_bytes")
"""Fields of a row that may hold the images."""

_SPEAKERS = {"human": "user", "gpt": "assistant"} | {role: role for role in ROLES}
_IMAGE_PARTS = ("image", "image_url", "input_image")
_PART_PATHS = ("image", "path", "image_url", "url")  # keys of an image part that may name its image


def parse_messages(name: str, turns: Any) -> list[Message]:
    """Convert the turns of a chat to messages.

    Args:
        name: file and row, for errors.
        turns: a list of turns in one of the formats above, or such a list as JSON.

    Raises:
        BadSampleError: `turns` is not such a list, or the turns are not a valid chat.
    """
    messages = [
        message
        for number, turn in enumerate(_turn_list(name, turns), 1)
        for message in _parse_turn(f"{name}: turn {number}", turn)
    ]
    if not messages or messages[0]["role"] == "assistant":
        raise BadSampleError(f"{name}: a chat must begin with a message of the user or the system")
    for position, message in enumerate(messages, 1):
        if MARKER in message["content"] and message["role"] != "user":
            raise BadSampleError(
                f"{name}: message {position} ({message['role']}) contains {MARKER}, which belongs in a user's text"
            )
    return messages


def resolve_part_images(name: str, turns: Any, paths: Sequence[Any]) -> list[Any]:
    """Return the paths of a chat's images: those of its record, else those that its image parts name.

    Args:
        name: file and row, for errors.
        turns: see `parse_messages`.
        paths: paths of the record, in the order of the markers; empty if it has none.

    Raises:
        BadSampleError: parts name other images than the record, or some of the parts name an image and others do not.
    """
    part_paths = [path for turn in _turn_list(name, turns) for path in _part_paths(turn)]
    if all(path is None for path in part_paths):
        return list(paths)
    if not paths:
        if None in part_paths:
            raise BadSampleError(f"{name}: image part {part_paths.index(None) + 1} names no image, but other parts do")
        return part_paths
    for number, (path, expected) in enumerate(zip(part_paths, paths, strict=False), 1):
        if path is not None and path != expected:
            raise BadSampleError(
                f"{name}: image part {number} names {_preview(path)}, but image {number} of the record is "
                f"{_preview(expected)}; remove either"
            )
    return list(paths)


def insert_image_markers(name: str, messages: Sequence[Message], images: int) -> list[Message]:
    """Return the messages with one marker per image; without markers, all are inserted before the first user's text.

    Raises:
        BadSampleError: the number of markers differs from the number of images, or there is no message of the user.
    """
    markers = sum(message["content"].count(MARKER) for message in messages)
    if markers == images:
        return list(messages)
    first = next((index for index, message in enumerate(messages) if message["role"] == "user"), None)
    if markers or first is None:
        raise BadSampleError(f"{name}: found {MARKER} {markers} times in the user's text, expected {images} times")
    text = f"{MARKER}\n" * images + messages[first]["content"]
    return [*messages[:first], Message(role="user", content=text), *messages[first + 1 :]]


def first_filled(fields: Sequence[str], found: Mapping[str, object]) -> str | None:
    """Return the first field with a value other than null and the empty list; else the first field that exists."""
    present = [field for field in fields if field in found]
    return next((field for field in present if found[field] not in (None, [])), present[0] if present else None)


def misspelled_image_field(fields: Mapping[str, object]) -> str | None:
    """Return a field that is not read and probably should hold the images; None if there is none."""
    if any(field in fields for field in IMAGE_FIELDS):
        return None
    unread = [field for field in fields if field not in CHAT_FIELDS]
    return next((field for field in unread if difflib.get_close_matches(field.lower(), IMAGE_FIELDS, 1, 0.7)), None)


def _turn_list(name: str, turns: Any) -> list[Any]:
    # A column of a Parquet table may hold the chat as JSON text.
    if isinstance(turns, str):
        try:
            turns = parse_json(turns)
        except ValueError as error:
            raise BadSampleError(f"{name}: the chat is not JSON ({error}): {turns[:80]!r}") from error
    if not isinstance(turns, list) or not turns:
        raise BadSampleError(f"{name}: the chat must be a list of one turn or more, found {_preview(turns)}")
    return turns


def _part_paths(turn: object) -> Iterator[Any]:
    """Yield what each image part of a turn names; None for a part that names nothing."""
    contents = [turn.get(key) for key in ("content", "value", "user", "assistant")] if isinstance(turn, dict) else []
    for content in contents:
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and part.get("type") in _IMAGE_PARTS:
                path = next((part[key] for key in _PART_PATHS if part.get(key)), None)
                # OpenAI's form: {"type": "image_url", "image_url": {"url": ...}}
                yield path.get("url", path.get("path")) if isinstance(path, dict) else path


def _parse_turn(name: str, turn: object) -> list[Message]:
    if isinstance(turn, dict) and {"user", "assistant"} & set(turn):
        # A turn of The Cauldron holds both sides, of which either may be null.
        pair = [(role, turn[role]) for role in ("user", "assistant") if turn.get(role) is not None]
        if not pair:
            raise BadSampleError(f"{name}: found {_preview(turn)}, expected a text of the user, the assistant, or both")
        return [Message(role=role, content=parse_content(name, content)) for role, content in pair]
    role, content = None, None
    if isinstance(turn, dict):
        role, content = (turn["from"], turn.get("value")) if "from" in turn else (turn.get("role"), turn.get("content"))
    if not isinstance(role, str) or role not in _SPEAKERS:
        expected = "{role, content}, {from, value} or {user, assistant} with " + ", ".join(_SPEAKERS)
        raise BadSampleError(f"{name}: expected {expected}; found {_preview(turn)}")
    return [Message(role=_SPEAKERS[role], content=parse_content(name, content))]


def parse_content(name: str, content: object) -> str:
    """Return the text of a turn's content.

    Args:
        name: file and row, for errors.
        content: a string, or a list of parts.

    Raises:
        BadSampleError: the content is neither.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadSampleError(f"{name}: the content must be a text, found {_preview(content)}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(parse_content(name, part["text"]))
        elif kind in _IMAGE_PARTS:
            texts.append(f"{MARKER}\n")
        else:
            raise BadSampleError(f"{name}: a part must be a text or an image, found {_preview(part)}")
    return "".join(texts)


def _preview(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda unknown: type(unknown).__name__)[:120]
