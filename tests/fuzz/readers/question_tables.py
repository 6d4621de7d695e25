"""Tables of questions about images, in TSV and CSV. The reference is the csv module over the whole file."""

import base64
import binascii
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader

_LETTERS = "ABCDEFGHIJ"
_IMAGE = base64.b64encode(b"an image of a test, longer than an index").decode()
_HEADER = ["index", "question", "hint", "A", "B", "C", "answer", "category", "image"]
_ROWS = [
    ["7", "Which one?", "nan", "red", "blue", "", "B", "hue/tone", _IMAGE],
    ["1000007", 'A "quoted"\ntext', "Look.", "x", "y", "z", "z", "", "7"],
    ["8", "Pick: A. one B. two", "", "", "", "", "A", "é", ""],
]
_OWN = [
    ["question", "options", "answer", "image", "kind"],
    ["Which?", "one|two", "two", "a.png", "count"],
    ["How many?", '["1", "2"]', "A", "", ""],
    ["Where?", "", "left", "", ""],
    ["Which?", "One|Two", "(b)", "", ""],
]
_DATES = [["question", "answers"], ["When?", "5 May|May 5"], ["When?", '["May", "5"]']]


class QuestionTables(Reader):
    """Rows of (question, accepted answers, letters, options, kind, images)."""

    def seeds(self) -> Sequence[Input]:
        return [
            Input("bench.tsv", _written([_HEADER, *_ROWS], "\t")),
            Input("own.csv", _written(_OWN, ",")),
            Input("dates.csv", _written(_DATES, ",")),
        ]

    def surround(self, folder: Path) -> None:
        (folder / "a.png").write_bytes(b"another image")

    def mutate(self, random: Random, seed: Input) -> Input:
        self._delimiter = b"\t" if seed.path.endswith(".tsv") else b","
        return super().mutate(random, seed)

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(self._delimiter)(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.vision_language.source_config import SourceSettings

        table = SourceSettings(str(path)).open(path.parent)
        rows = []
        for row in range(len(table)):
            chat = table.read(row)
            assert chat.reference is not None
            assert chat.messages[-1]["content"] == chat.reference.accepted[0]
            prompt = chat.messages[0]["content"].replace("<image>", " ").split()
            rows.append((prompt, *chat.reference[1:], chat.reference.kind, chat.images))
        return rows

    def reference(self, path: Path) -> Any:
        data = path.read_bytes()
        if b"\0" in data:
            raise InvalidInput("it has a NUL byte")
        delimiter = "\t" if path.suffix == ".tsv" else ","
        # Lines end with a line feed, so a carriage return alone is part of a cell, which needs quotes.
        try:
            lines = data.decode("utf-8-sig").split("\n")
            found = list(csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput(str(error)) from error
        rows = [row for row in found if any(map(str.strip, row))]
        header = [cell.strip() for cell in rows[0]] if rows else []
        if "question" not in header or len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
            raise InvalidInput("rows differ in length, or the header has no question")
        records = [dict(zip(header, row, strict=True)) for row in rows[1:]]
        return [_row(record, records, path.parent) for record in records]


READERS = {"question_tables": QuestionTables}


def _written(rows: list[list[str]], delimiter: str) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()


def _row(record: dict[str, str], records: list[dict[str, str]], folder: Path) -> tuple[Any, ...]:
    found = {key: cell.strip() for key, cell in record.items() if cell.strip().lower() not in ("", "nan")}
    if "question" not in found or not {"answer", "answers"} & set(found):
        raise InvalidInput("there is no question or no answer")
    answers = [found["answer"]] if "answer" in found else _texts(found["answers"])
    answer = answers[0] if answers else ""
    options = _options(found)
    if options:
        letters = _LETTERS[: len(options)]
        if "answer" not in found:
            raise InvalidInput("a list of answers beside options")
        letter = re.fullmatch(r"\(?([A-Za-z])[).:]?", answer)
        index = letters.find(letter[1].upper()) if letter else -1
        same = [number for number, option in enumerate(options) if option.casefold() == answer.casefold()]
        exact = [number for number, option in enumerate(options) if option == answer]
        if (exact or len(same) == 1) and (index < 0 or "A" not in found):
            index = exact[0] if exact else same[0]
        if index < 0:
            raise InvalidInput("the answer is no option")
        answers = [letters[index]]
    elif not answers or not all(answers):
        raise InvalidInput("an answer is empty")
    else:
        count = 0
        while count < len(_LETTERS) and re.search(rf"(?:^|[\s(]){_LETTERS[count]}[.:)]", found["question"]):
            count += 1
        letters = _LETTERS[:count] if count > 1 and len(answer) == 1 and answer in _LETTERS[:count] else ""
        answers = [answer] if letters else list(dict.fromkeys(answers))
    lines = [f"{letter}. {option}" for letter, option in zip(letters, options, strict=False)]
    instruction = ["Answer with the option's letter from the given choices directly."] if letters else []
    prompt = "\n".join([found.get("hint", ""), found["question"], *lines, *instruction])
    images = _images(record, records, folder)
    if "<image>" in answers[0] or prompt.count("<image>") not in (0, len(images)):
        raise InvalidInput("the markers are not those of the images")
    kind = next((found[key] for key in ("kind", "category", "question_types") if key in found), "")
    kind = re.sub(r"[\s/]+", "_", kind)[:64]
    return prompt.replace("<image>", " ").split(), tuple(answers), letters, tuple(options), kind, images


def _options(found: dict[str, str]) -> list[str]:
    cell = found.get("options", found.get("choices"))
    if cell is None:
        options = [found[letter] for letter in _LETTERS if letter in found]
        if any(letter not in found for letter in _LETTERS[: len(options)]):
            raise InvalidInput("a letter is missing")
    else:
        options = _texts(cell)
    if cell is not None and not options:
        return []
    if options and not 2 <= len(options) <= len(_LETTERS):
        raise InvalidInput("one option, or too many")
    if len(set(options)) < len(options):
        raise InvalidInput("two options are equal")
    return options


def _texts(cell: str) -> list[str]:
    if not cell.startswith("["):
        return [text.strip() for text in cell.split("|")]
    texts = plain_json.parse(cell)
    if not all(isinstance(text, str | int | float) and not isinstance(text, bool) for text in texts):
        raise InvalidInput("a text is no text")
    return [str(text).strip() for text in texts]


def _images(record: dict[str, str], records: list[dict[str, str]], folder: Path) -> list[bytes]:
    cell = next((record[key].strip() for key in ("image", "images") if record.get(key, "").strip()), "")
    if cell.isdecimal():
        other = next((row for row in records if row.get("index", "").strip() == cell), None)
        if other is None:
            raise InvalidInput("no row has the index")
        cell = next((other[key].strip() for key in ("image", "images") if key in other), "")
        if not cell or cell.isdecimal():
            raise InvalidInput("the row with the index has no image")
    if not cell:
        return []
    if "." in cell:
        path = folder / cell
        if ".." in path.parts or not path.is_relative_to(folder) or not path.is_file():
            raise InvalidInput("there is no such image")
        return [path.read_bytes()]
    try:
        return [base64.b64decode(cell, validate=True)]
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(str(error)) from error
