"""Reads the lines of a chat: commands that set the input, and questions."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from commands.answers.answer_blocks import AnswerBlock, Note, Text, block_as_json
from commands.answers.answer_service import (
    MEGABYTE,
    AnswerService,
    FieldChoice,
    InputField,
    PickedValue,
    Turn,
    UploadedFile,
    UserInputError,
    UserQuestion,
)

_TIME = " @ "
"""Separates a title from its time."""

_MAX_TURNS = 20

_SET = "set"
"""Key of the line that confirms a command."""


class ChatCommand(NamedTuple):
    """A line that begins with a slash: the name after the slash, and the value after the name."""

    name: str
    value: str


class ChatSession:
    """Input and conversation of a chat.

    Args:
        service: answer service of the model.
    """

    def __init__(self, service: AnswerService) -> None:
        self._service = service
        self._fields = {field.name: field for field in service.fields}
        self._texts: dict[str, str] = {}
        self._files: dict[str, list[UploadedFile]] = {}
        self._picked: dict[str, list[PickedValue]] = {}
        self._turns: list[Turn] = []
        self._answers: list[Mapping[str, Any]] = []
        self._asked = next((field for field in service.fields if field.kind == "text"), None)

    @property
    def has_text(self) -> bool:
        """Whether a plain line is a question. Otherwise it is a value of the first field."""
        return self._asked is not None

    @property
    def first(self) -> str:
        """Name of the first field."""
        return self._service.fields[0].name

    def help(self) -> list[tuple[str, str]]:
        """Return each command and what it does."""
        lines = []
        if self._asked is not None:
            has_files = any(field.kind in ("picture", "file") for field in self._fields.values())
            path_hint = "; a path by itself gives the file" if has_files else ""
            lines.append((self._asked.name.upper(), f"any other line is a {self._asked.name}{path_hint}"))
        for field in self._fields.values():
            if field is not self._asked:
                lines.append((f"/{field.name}{_value(field)}", f"{field.label}. {field.help}".strip()))
        if self._asked is None:
            first = self._service.fields[0]
            lines.append((f"{_value(first).strip()}", f"the same as /{first.name}, and asks"))
            lines.append(("/ask", "ask with what is set"))
        return [
            *lines,
            ("/new", "forget the conversation and the input"),
            ("/save FILE", "write questions and answers as lines of JSON"),
            ("/help", "these lines"),
            ("/quit", "end; Ctrl-D and Ctrl-C do, too"),
        ]

    def set(self, command: ChatCommand) -> Iterator[AnswerBlock]:
        """Set a field, and yield the family's preview of it.

        Raises:
            UserInputError: there is no such command, or its value cannot be used.
        """
        field = self._fields.get(command.name)
        if field is None:
            raise UserInputError(f"/{command.name}: there is no such command; /help lists them")
        if field.kind in ("picture", "file"):
            yield from self._read_files(field, command.value)
            shown = [file.name for file in self._files[field.name]]
        elif field.kind == "pick":
            shown = self._pick(field, [part for part in command.value.split(";") if part.strip()])
        else:
            value = self._chosen(field, command.value) if field.kind == "choice" else command.value
            self._texts[field.name] = value
            shown = [value] if value else []
        yield Note(_SET, f"{field.label}: {'; '.join(shown) or 'nothing'}")

    def path_command(self, line: str) -> ChatCommand | None:
        """Return the command that sets a field to the files of which a line has the paths; None if it has none."""
        for field in self._fields.values():
            paths = _paths(line) if field.kind in ("picture", "file") else []
            if paths and all(path.name.lower().endswith(field.suffixes) and _is_path(path) for path in paths):
                return ChatCommand(field.name, line)
        return None

    def ask(self, text: str) -> Iterator[AnswerBlock]:
        """Yield the answer to a question; it becomes a turn of the conversation.

        Raises:
            UserInputError: it cannot be answered.
        """
        texts = {field.name: field.choices[0].value for field in self._fields.values() if field.kind == "choice"}
        texts |= self._texts
        if self._asked is not None:
            texts[self._asked.name] = text
        question = UserQuestion(texts, self._files, self._picked, self._turns[-_MAX_TURNS:])
        blocks: dict[str, AnswerBlock] = {}
        for block in self._service.answer(question):
            blocks[block.key] = block
            yield block
        answer = next((part.text for part in blocks.values() if isinstance(part, Text) and part.is_answer), None)
        if self._service.is_conversation and answer is not None:
            self._turns.append(Turn(text, answer))
        files = {name: [file.name for file in files] for name, files in self._files.items()}
        shown = [_without_pictures(block_as_json(block)) for block in blocks.values()]
        self._answers.append({"question": text, **texts, **files, "answer": shown})

    def forget(self) -> None:
        """Forget the conversation and the input."""
        # Answers stay: `/save` writes all of the session.
        for part in (self._texts, self._files, self._picked, self._turns):
            part.clear()

    def save(self, path: Path) -> int:
        """Write questions and answers; return their number.

        Raises:
            UserInputError: the file exists, or cannot be written.
        """
        try:
            with path.open("x", encoding="utf-8") as file:
                file.writelines(json.dumps(answer, ensure_ascii=False) + "\n" for answer in self._answers)
        except OSError as error:
            raise UserInputError(f"/save {path}: {error.strerror}; expected the name of a new file") from error
        return len(self._answers)

    def _read_files(self, field: InputField, paths: str) -> Iterator[AnswerBlock]:
        """Read the files of a field; several paths are separated by semicolons."""
        found = []
        for path in _paths(paths):
            file = _file(path, field)
            yield from self._service.accept(field, file)
            found.append(file)
        if not found:
            raise UserInputError(f"/{field.name}: expected the path of a file")
        if len(found) > field.max_count:
            raise UserInputError(f"/{field.name}: found {len(found)} files, expected at most {field.max_count}")
        self._files[field.name] = found

    def _pick(self, field: InputField, parts: list[str]) -> list[str]:
        """Set a field to values found by their texts; return what they are called."""
        if len(parts) > field.max_count:
            raise UserInputError(f"/{field.name}: found {len(parts)} values, expected at most {field.max_count}")
        items = [self._find_item(field, part.strip()) for part in parts]
        self._picked[field.name] = [picked for picked, _ in items]
        return [f"{label}{_TIME}{picked.time}" if picked.time else label for picked, label in items]

    def _find_item(self, field: InputField, part: str) -> tuple[PickedValue, str]:
        text, at, time = part.rpartition(_TIME) if field.times and _TIME in part else (part, "", "")
        choices = self._service.search(field, text)
        exact = [choice for choice in choices if text in (choice.value, choice.label)]
        # An exact title comes first, whatever the order of the search.
        matches: list[FieldChoice] = [*exact, *choices][:1]
        if not matches:
            raise UserInputError(f"/{field.name}: found nothing for {text!r}")
        return PickedValue(matches[0].value, time.strip() if at else ""), matches[0].label

    def _chosen(self, field: InputField, value: str) -> str:
        """Return a choice by its value or label. Without a value, return the choice after the current choice."""
        values = [choice.value for choice in field.choices]
        if not value:
            return values[(values.index(self._texts.get(field.name, values[0])) + 1) % len(values)]
        choice_value = next((choice.value for choice in field.choices if value in (choice.value, choice.label)), None)
        if choice_value is None:
            raise UserInputError(f"/{field.name}: found {value!r}, expected one of {', '.join(values)}")
        return choice_value


def parse_command(line: str) -> ChatCommand | None:
    """Return the command of a line; None if it is a question."""
    if not line.startswith("/") or line.startswith("//") or _is_path(Path(line)):
        return None
    name, _, value = line[1:].partition(" ")
    return ChatCommand(name, value.strip())


def _paths(line: str) -> list[Path]:
    """Return the paths of a line, between semicolons; a terminal puts a dropped path into quotes."""
    parts = (part.strip() for part in line.split(";"))
    return [Path(os.path.expanduser(part.strip("'\""))) for part in parts if part]


def _is_path(path: Path) -> bool:
    try:
        return path.exists()  # a path may begin with a slash
    except OSError:  # too long for a name, or not permitted
        return False


def _file(path: Path, field: InputField) -> UploadedFile:
    if field.suffixes and not path.name.lower().endswith(field.suffixes):
        raise UserInputError(f"{path}: expected a file that ends in {', '.join(field.suffixes)}")
    try:
        with path.open("rb") as file:
            # A byte more than allowed shows that a file is too large, of which no more is read.
            content = file.read(field.max_bytes + 1)
    except OSError as error:
        raise UserInputError(f"{path}: {error.strerror}") from error
    if len(content) > field.max_bytes:
        raise UserInputError(f"{path}: larger than {field.max_bytes / MEGABYTE:.0f} MB, the most that is accepted")
    return UploadedFile(path.name, content)


def _value(field: InputField) -> str:
    if field.kind in ("picture", "file"):
        return " FILE" if field.max_count == 1 else " FILE; FILE; ..."
    if field.kind == "pick":
        title = f"TITLE{_TIME}TIME" if field.times else "TITLE"
        return f" {title}" if field.max_count == 1 else f" {title}; {title}; ..."
    if field.kind == "choice":
        return f" [{'|'.join(choice.value for choice in field.choices)}]"
    return " TIME" if field.kind == "time" else " TEXT"


def _without_pictures(block: dict[str, Any]) -> dict[str, Any]:
    if "pictures" not in block:
        return block
    return {**block, "pictures": [{**shown, "url": ""} for shown in block["pictures"]]}
