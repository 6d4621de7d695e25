"""Reads conversations for `predict`: which turns the model answers, and a conversation up to the next of them.

A question of the user that is followed by another question, or by nothing, is open: the model answers it, and reads its
own answer before the next turn. Answers that are given stay as they are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from datamodules.multimodal.predict_questions import check_object, check_question, read_objects, require_file
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.files.chat_formats import CHAT_FIELDS, parse_content, parse_messages
from datamodules.vision_language.files.json_index import index_elements, read_record
from engine.io.json_records import describe_value

_FIELDS = {"question", *CHAT_FIELDS, "image", "images", "id"}


def read_conversations(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file and line, object) of each line of a JSONL file, or of each element of the list in a `.json` file.

    Raises:
        ValueError: the file is neither, or an object has unknown keys; the message names file and line.
    """
    if path.suffix.lower() != ".json":
        yield from read_objects(path, _FIELDS)
        return
    require_file(path)
    extents = index_elements(path)
    if not len(extents.starts):
        raise ValueError(f"{path}: the list is empty, expected an object with a question in it")
    with path.open("rb") as file:
        line = 1
        for index, start in enumerate(extents.starts.tolist()):
            # The line of an element is counted from the line breaks before it; the index has offsets only.
            line += file.read(start - file.tell()).count(b"\n")
            where = f"{path}, line {line}"
            try:
                record = read_record(path, extents, index)
            except ValueError as error:
                raise ValueError(f"{where}: not JSON ({error})") from error
            yield where, check_object(where, record, _FIELDS)


def conversation(where: str, record: dict[str, Any]) -> list[Message]:
    """Return the messages of a record: of `question`, a text or a list of texts, or of a chat in one of CHAT_FIELDS.

    Raises:
        ValueError: there is neither or both, a question is empty, or the last message is not of the user.
    """
    # A null is a missing key: a program that writes all keys of all rows has one of them in each.
    present = [field for field in ("question", *CHAT_FIELDS) if record.get(field) is not None]
    if len(present) > 1:
        raise ValueError(f"{where}: found {' and '.join(present)}, expected one of them")
    if present in ([], ["question"]):
        question = record.get("question")
        texts = question if isinstance(question, list) and question else [question]
        return [Message(role="user", content=parse_content(where, check_question(where, text))) for text in texts]
    messages = parse_messages(where, record[present[0]])
    if messages[-1]["role"] != "user":
        found = f"found a message of the {messages[-1]['role']} at the end"
        raise ValueError(f"{where}: {found}, expected a question of the user, which predict answers")
    empty = [index for index, message in enumerate(messages, 1) if not message["content"].strip()]
    if empty:
        raise ValueError(
            f"{where}: message {empty[0]} is {describe_value(messages[empty[0] - 1]['content'])}, expected a text"
        )
    return messages


def open_turns(messages: Sequence[Message]) -> list[int]:
    """Return the indices of the questions that the model answers."""
    # After the last message comes nothing, which counts as a further question.
    following = [message["role"] for message in messages[1:]] + ["user"]
    return [
        index
        for index, (message, after) in enumerate(zip(messages, following, strict=True))
        if message["role"] == "user" and after != "assistant"
    ]


def until_open_turn(messages: Sequence[Message], answers: Sequence[str]) -> list[Message]:
    """Return a conversation up to its next open question, with the model's answers to earlier questions.

    Args:
        messages: the conversation.
        answers: answers of the model to the first open questions; fewer than there are.
    """
    turns = open_turns(messages)
    answered = dict(zip(turns, answers, strict=False))
    found: list[Message] = []
    for index, message in enumerate(messages[: turns[len(answers)] + 1]):
        found.append(message)
        if index in answered:
            found.append(Message(role="assistant", content=answered[index]))
    return found
