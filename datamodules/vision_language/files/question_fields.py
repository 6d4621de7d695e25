"""Converts a row of a table of questions to a chat, with what is accepted as its answer.

==========================================  =======================================
fields                                      read from
==========================================  =======================================
``A``, ``B``, ... and ``hint``              MMBench
``choices``, ``answer`` an index, ``hint``  ScienceQA
``answer`` a letter of options in the text  MMStar
``answers``                                 DocVQA, TextVQA, InfographicVQA
==========================================  =======================================
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_file import MARKER, ReferenceAnswer
from engine.data.errors import BadSampleError
from engine.io.json_records import describe_value
from engine.number_check import is_number

OPTION_COLUMNS = "ABCDEFGHIJ"
"""Columns with one option each; their names are the letters of options too."""

IMAGE_FIELDS = ("image", "images")
OPTION_FIELDS = ("options", "choices")
ANSWER_FIELDS = ("answer", "answers")
KIND_FIELDS = ("kind", "category", "question_types")
FIELDS = ("question", "hint", *OPTION_FIELDS, *OPTION_COLUMNS, *ANSWER_FIELDS, *KIND_FIELDS, *IMAGE_FIELDS)
"""Columns that are read, if they exist; `question` is required."""

INSTRUCTION = "Answer with the option's letter from the given choices directly."
"""Last line of a question with options, as in LLaVA's training data and evaluations (Liu et al., 2024)."""

_LISTED = r"(?:^|[\s(])%s[.:)]"  # an option in the text of a question, as A. or (A)
_LONGEST = 100_000  # characters of a text


class ImageQuestion(NamedTuple):
    """Question of a row as messages, with the answers that are accepted; images are read separately."""

    messages: list[Message]  # of the user and of the assistant
    reference: ReferenceAnswer


def parse_image_question(name: str, fields: Mapping[str, object]) -> ImageQuestion:
    """Convert the fields of a row.

    Args:
        name: file and row, for errors.
        fields: values by column; null, NaN, and the texts "" and "nan" are missing values.

    Raises:
        BadSampleError: there is no question or no answer, two options are equal, or the answer is none of them.
    """
    filled = {field: value for field, value in fields.items() if not is_missing(value)}
    if "question" not in filled:
        raise BadSampleError(f"{name}: found no question")
    question = _field_text(name, "question", filled["question"])
    # Columns A, B, ... name the options by letters.
    lettered = [filled.get(letter) for letter in OPTION_COLUMNS]
    if options := _options(name, filled):
        letters = OPTION_COLUMNS[: len(options)]
        answer = letters[_chosen(name, options, _answer(name, filled), has_letters=lettered[0] is not None)]
        lines = [f"{letter}. {option}" for letter, option in zip(letters, options, strict=True)]
    else:
        lines, accepted = [], _accepted_answers(name, filled)
        answer, letters = accepted[0], _letters_of(question, accepted[0])
    texts = [_field_text(name, "hint", filled["hint"])] if "hint" in filled else []
    texts += [question, *lines, *([INSTRUCTION] if letters else [])]
    messages = [Message(role="user", content="\n".join(texts)), Message(role="assistant", content=answer)]
    if MARKER in answer:
        raise BadSampleError(f"{name}: the answer contains {MARKER}, which belongs in a question")
    reference = ReferenceAnswer(_kind(name, filled), (answer,) if letters else tuple(accepted), letters, tuple(options))
    return ImageQuestion(messages, reference)


def is_missing(value: object) -> bool:
    """Return whether a cell has no value: null, NaN, an empty list, blank, or the text nan, as pandas writes it."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or value == [] or (isinstance(value, str) and value.strip().lower() in ("", "nan"))


def _field_text(name: str, field: str, value: object) -> str:
    if not isinstance(value, str) and not is_number(value) or len(str(value)) > _LONGEST:
        raise BadSampleError(f"{name}: {field}: found {describe_value(value)}, expected a text")
    return str(value).strip()


def _options(name: str, found: Mapping[str, Any]) -> list[str]:
    """Return the options of a list or of the columns A, B, ...; none for an open question."""
    field = next((field for field in OPTION_FIELDS if field in found), None)
    if field is None:
        columns = [letter for letter in OPTION_COLUMNS if letter in found]
        if columns and columns != list(OPTION_COLUMNS[: len(columns)]):
            raise BadSampleError(f"{name}: found the options {', '.join(columns)}, expected A, B, ... without a gap")
        options = [_field_text(name, letter, found[letter]) for letter in columns]
    elif isinstance(found[field], list):
        options = [_field_text(name, field, option) for option in found[field]]
    else:
        raise BadSampleError(f"{name}: {field}: found {describe_value(found[field])}, expected a list of texts")
    if options and not 2 <= len(options) <= len(OPTION_COLUMNS):
        raise BadSampleError(f"{name}: found {len(options)} options, expected 2 to {len(OPTION_COLUMNS)}")
    if len(set(options)) < len(options):  # the letter of either would be the right answer, and one is graded as wrong
        raise BadSampleError(f"{name}: found the options {describe_value(options)}, expected options that differ")
    return options


def _answer(name: str, found: Mapping[str, object]) -> Any:
    field = next((field for field in ANSWER_FIELDS if field in found), None)
    if field is None:
        raise BadSampleError(f"{name}: found no answer, expected one in {' or '.join(ANSWER_FIELDS)}")
    return found[field]


def _chosen(name: str, options: list[str], answer: object, has_letters: bool) -> int:
    """Return the index of the answer, which is given by its index, its letter, or its text.

    A text that is both a letter and an option is the option, unless the columns are letters. An index is a number: the
    digits of a text table may be an option as well as an index, so they are options.
    """
    if is_number(answer):
        # `in range` is true for 1.0 and false for 1.5.
        if answer in range(len(options)):  # pandas writes integers beside missing values as 1.0
            return int(answer)
    elif isinstance(answer, str):
        text = answer.strip()
        match = re.fullmatch(r"\(?([A-Za-z])[).:]?", text)
        letter = OPTION_COLUMNS.find(match[1].upper()) if match else -1
        plain = [option.casefold() for option in options]
        same = options.index(text) if text in options else -1
        if same < 0 and plain.count(text.casefold()) == 1:
            same = plain.index(text.casefold())
        indices = [letter if 0 <= letter < len(options) else -1, same]
        marked = [index for index in (indices if has_letters else reversed(indices)) if index >= 0]
        if marked:
            return marked[0]
    expected = f"a letter of {OPTION_COLUMNS[: len(options)]}, an option or an index from 0"
    raise BadSampleError(f"{name}: answer: found {describe_value(answer)}, expected {expected}")


def _accepted_answers(name: str, found: Mapping[str, object]) -> list[str]:
    """Return the accepted answers to an open question, in their order and each once."""
    answer = _answer(name, found)
    texts = [_field_text(name, "answer", text) for text in (answer if isinstance(answer, list) else [answer])]
    if not all(texts):
        raise BadSampleError(f"{name}: found an empty answer, expected a text")
    return list(dict.fromkeys(texts))


def _letters_of(question: str, answer: str) -> str:
    """Return the letters of the options in the text of a question; empty if the answer is not such a letter."""
    letters = ""
    while len(letters) < len(OPTION_COLUMNS) and re.search(_LISTED % OPTION_COLUMNS[len(letters)], question):
        letters += OPTION_COLUMNS[len(letters)]
    return letters if len(letters) > 1 and len(answer) == 1 and answer in letters else ""


def _kind(name: str, found: Mapping[str, Any]) -> str:
    """Return the kind of a question, as a part of a metric's name: without slashes, on one line."""
    field = next((field for field in KIND_FIELDS if field in found), None)
    if field is None:
        return ""
    value = found[field][0] if isinstance(found[field], list) else found[field]
    kind = re.sub(r"[\s/]+", "_", _field_text(name, field, value))[:64]
    return "baseline_" if kind == "baseline" else kind  # baseline/ begins the names of the baselines' metrics
