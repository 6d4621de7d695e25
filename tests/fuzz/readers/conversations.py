"""Conversations for `predict` about images: JSON lines, or a list in a `.json` file. The reference is plain_json."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.mutations.records import line_record_mutation, record_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader
from tests.fuzz.readers.images import write_images

_MARKER = "<image>"
_CHATS = ("messages", "conversations", "texts")
_ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}
_KEYS = (*_CHATS, "question", "image", "images", "role", "content", "from", "value", "user", "assistant")
_RECORDS: list[dict[str, Any]] = [
    {
        "id": 1,
        "image": "a.png",
        "conversations": [
            {"from": "human", "value": "<image>\nWhat is it?"},
            {"from": "gpt", "value": "A cat — schön."},
            {"from": "human", "value": "And now?"},
        ],
    },
    {
        "id": "two",
        "messages": [
            {"role": "system", "content": "Short."},
            {"role": "user", "content": "Hello"},
            {"role": "user", "content": [{"type": "text", "text": "Bye"}]},
        ],
    },
    {"images": ["a.png", "deep/b.jpg"], "texts": [{"user": "What?", "assistant": "That."}, {"user": "Why?"}]},
    {"image": "a.png", "messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "é?"}]}]},
    {"question": ["What is <image>?", "And <image>?"], "images": ["a.png", "deep/b.jpg"]},
]

Turns = list[tuple[str, list[str]]]
"""Role and words of each message."""


class Conversations(Reader):
    """Rows of (turns, number of questions that the model answers, number of images that the first of them has)."""

    def seeds(self) -> Sequence[Input]:
        lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in _RECORDS)
        return [
            Input("chats.jsonl", (lines + "\n\n").encode()),
            Input("chats.json", json.dumps(_RECORDS, indent=1).encode()),
        ]

    def surround(self, folder: Path) -> None:
        write_images(folder)

    def mutate(self, random: Random, seed: Input) -> Input:
        if seed.path.endswith(".json") and random.random() < 0.5:
            return seed._replace(data=record_mutation(_KEYS)(random, seed.data))
        return super().mutate(random, seed)

    def restructure(self, random: Random, data: bytes) -> bytes:
        return line_record_mutation(_KEYS)(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.multimodal.batch import ImageLayout
        from datamodules.vision_language.chat_dataset import ImageProcessor
        from datamodules.vision_language.predict_questions import PredictDataset

        found = PredictDataset(path, ImageProcessor(ImageLayout(16, 4), 10_000))
        rows = []
        for index in range(len(found)):
            images = found.decode_images(index)
            assert len(found.item(0, index).counts) == len(images)
            turns = [(message["role"], _words(message["content"])) for message in found.messages(index)]
            rows.append((turns, found.turns(index), len(images)))
        return rows

    def reference(self, path: Path) -> Any:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
        if path.suffix == ".json":
            records = plain_json.parse(data)
        else:
            records = [record for _, record in plain_json.lines(b"\n".join(data.splitlines()))]
        if not isinstance(records, list) or not records:
            raise InvalidInput("it is no list, or an empty list")
        return [self._row(record, path.parent) for record in records]

    def _row(self, record: Any, folder: Path) -> tuple[Turns, int, int]:
        if not isinstance(record, dict) or not {*record} <= {"question", *_CHATS, "image", "images", "id"}:
            raise InvalidInput("a record is no object, or has other keys")
        turns = list(_turns(record))
        if turns[0][0] == "assistant" or turns[-1][0] != "user" or not all(text.strip() for _, text in turns):
            raise InvalidInput("the first message is an answer, the last is no question, or one is empty")
        try:
            json.dumps([turns, record.get("id")], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("a text has half of a character") from error
        image, images = record.get("image"), record.get("images")  # null is no image
        if (image is not None and images is not None) or isinstance(record.get("id"), list | dict):
            raise InvalidInput("it has image and images, or the id is no text and no number")
        images = ([] if image is None else [image]) if images is None else images
        if not isinstance(images, list) or not all(isinstance(image, str) and image for image in images):
            raise InvalidInput("an image is no path")
        if any(_MARKER in text for role, text in turns if role != "user"):
            raise InvalidInput("a marker is not in a question")
        markers = [text.count(_MARKER) for _, text in turns]
        if sum(markers) not in (0, len(images)):
            raise InvalidInput("the markers are not those of the images")
        after = [role for role, _ in turns[1:]] + ["user"]
        opens = [index for index, (role, _) in enumerate(turns) if role == "user" and after[index] != "assistant"]
        read = images[: sum(markers[: opens[0] + 1])] if any(markers) else images
        if any("\0" in image or not (folder / image).is_file() for image in read):
            raise InvalidInput("an image does not exist")
        return [(role, _words(text)) for role, text in turns], len(opens), len(read)


READERS = {"conversations": Conversations}


def _turns(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield role and text of each message."""
    given = [key for key in ("question", *_CHATS) if key in record]
    if len(given) != 1:
        raise InvalidInput("it has no question and no chat, or several")
    found = record[given[0]]
    if given == ["question"]:
        for question in found if isinstance(found, list) and found else [found]:
            if not isinstance(question, str):
                raise InvalidInput("a question is no text")
            yield "user", question
        return
    found = plain_json.parse(found) if isinstance(found, str) else found
    if not isinstance(found, list) or not found:
        raise InvalidInput("a chat is no list of turns")
    for turn in found:
        if not isinstance(turn, dict):
            raise InvalidInput("a turn is no object")
        if "user" in turn or "assistant" in turn:
            pairs = [(role, turn[role]) for role in ("user", "assistant") if turn.get(role) is not None]
        else:
            pairs = [(turn["from"], turn.get("value")) if "from" in turn else (turn.get("role"), turn.get("content"))]
        for role, content in pairs:
            if not isinstance(role, str) or role not in _ROLES:
                raise InvalidInput("a turn has another role")
            yield _ROLES[role], _content(content)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise InvalidInput("a turn has no text")
    texts = []
    for part in content:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif part.get("type") in ("image", "image_url", "input_image"):
            texts.append(f"{_MARKER}\n")
        else:
            raise InvalidInput("a part is no text and no image")
    return "".join(texts)


def _words(text: str) -> list[str]:
    return text.replace(_MARKER, " ").split()
