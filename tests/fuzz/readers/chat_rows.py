"""Reads the records of chats plainly, as the reference of the readers of chats, and has valid records to mutate."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.reader import InvalidInput, Unknown

KEYS = (
    "messages",
    "conversations",
    "texts",
    "images",
    "image",
    "role",
    "content",
    "from",
    "value",
    "user",
    "assistant",
)
MARKER = "<image>"
IMAGES = {"a.png": b"the first image", "b/c.png": b"the second image"}  # no reader of chats decodes them
RECORDS: list[dict[str, Any]] = [
    {
        "id": 1,
        "image": "a.png",
        "conversations": [
            {"from": "human", "value": "<image>\nWhat is it?"},
            {"from": "gpt", "value": "A cat — schön."},
        ],
    },
    {"id": 2, "conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]},
    {
        "id": 3,
        "images": ["a.png", "b/c.png"],
        "messages": [
            {"role": "system", "content": "Short."},
            {"role": "user", "content": "Compare."},
            {"role": "assistant", "content": "They differ."},
        ],
    },
    {"id": 4, "images": [{"path": "b/c.png"}], "texts": [{"user": "What?", "assistant": "That."}]},
    {
        "id": 5,
        "image": "a.png",
        "messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which?"}]},
            {"role": "assistant", "content": "This."},
        ],
    },
]


def words(texts: Any) -> list[str]:
    """Return the words of the texts; the parts of a content are joined without a separator."""
    return "\n".join(texts).replace(MARKER, "\n").split()


def _texts(turns: Any) -> Iterator[str]:
    """Yield the texts of turns in any of the formats."""
    if isinstance(turns, str):
        turns = plain_json.parse(turns)
    if not isinstance(turns, list) or not turns:
        raise InvalidInput("a chat is no list of turns")
    for turn in turns:
        if not isinstance(turn, dict):
            raise InvalidInput("a turn is no object")
        if "user" in turn or "assistant" in turn:
            contents = [turn[role] for role in ("user", "assistant") if turn.get(role) is not None]
        else:
            contents = [turn.get("value") if "from" in turn else turn.get("content")]
        for content in contents:
            if isinstance(content, str):
                yield content
            elif isinstance(content, list):
                parts = [part.get("text", MARKER) if isinstance(part, dict) else None for part in content]
                if not all(isinstance(part, str) for part in parts):
                    raise InvalidInput("a part is no text and no image")
                yield "".join(f"{MARKER}\n" if part == MARKER else part for part in parts)
            else:
                raise InvalidInput("a turn has no text")


def row_of(record: Any, folder: Path) -> tuple[list[str], list[bytes]]:
    if not isinstance(record, dict):
        raise InvalidInput("a record is no object")
    chat = _first(record, ("messages", "conversations", "texts"))
    images = _first(record, ("images", "image", "image_bytes"))
    images = [] if images is None else images if isinstance(images, list) else [images]
    return words(_texts(chat)), [_image(image, folder) for image in images]


def _first(record: dict[str, Any], fields: Sequence[str]) -> Any:
    return next((record[field] for field in fields if record.get(field) not in (None, [])), None)


def _image(image: Any, folder: Path) -> bytes:
    if isinstance(image, dict):
        image = image.get("path") if image.get("bytes") is None else image["bytes"]
    if isinstance(image, bytes):
        return image
    path = folder / str(image)
    if not isinstance(image, str) or ".." in path.parts or not path.is_relative_to(folder) or not path.is_file():
        raise InvalidInput(f"it has no image {image!r}"[:200])
    return path.read_bytes()


def shard_row(files: dict[str, bytes]) -> tuple[list[str], list[bytes]]:
    kinds = ("jpg", "jpeg", "png", "webp", "gif", "bmp")
    images = [content for suffix, content in files.items() if suffix.rpartition(".")[2] in kinds]
    if "json" in files:
        try:
            record = plain_json.parse(files["json"].removeprefix(b"\xef\xbb\xbf"))
        except InvalidInput:
            if files["json"].startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in files["json"]:
                raise Unknown("json.loads reads UTF-16 and UTF-32, too") from None
            raise
        turns = _first(record, ("messages", "conversations", "texts")) if isinstance(record, dict) else record
        if turns is not None:
            return words(_texts(turns)), images
        if isinstance(record, dict) and any(field in record for field in ("messages", "conversations", "texts")):
            raise Unknown("an empty chat beside a caption")
    if "txt" not in files or not images:
        raise InvalidInput("a sample has neither chat nor caption")
    return files["txt"].decode("utf-8-sig").split(), images
