"""Parses options of a choice question: with or without letters, answered by letter or by text."""

import re
import unicodedata
from collections.abc import Sequence

from datamodules.document_qa.types.question import OPTION_LETTERS

_LABEL = re.compile(r"\s*[(（]?\s*([A-Za-zＡ-Ｚａ-ｚ])\s*[)）]?\s*[.．。、:：)）]\s*")
"""`A. `, `A)`, `(A) `, `Ａ．`, `A、` and similar labels."""

_LETTER = re.compile(r"\s*[(（]?\s*([A-Za-zＡ-Ｚａ-ｚ])\s*[)）]?\s*[.．。、:：]?\s*")


def strip_letters(options: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return the options' texts, and whether they had letters.

    Letters are labels only if every option has the letter of its position; otherwise they belong to the text.

    Raises:
        ValueError: there are too many options, an option is empty, two are equal, or the letters are out of order.
    """
    if not 2 <= len(options) <= len(OPTION_LETTERS):
        raise ValueError(
            f"found {len(options)} options, expected 2 to {len(OPTION_LETTERS)}, or none for an open question"
        )
    labels = [label for option in options if (label := _LABEL.match(option)) is not None]
    if len(labels) == len(options):
        letters = "".join(_normalize(label[1]) for label in labels)
        expected = OPTION_LETTERS[: len(options)]
        if letters == expected:
            return _texts([option[label.end() :] for option, label in zip(options, labels, strict=True)]), True
        if sorted(letters) == sorted(expected):
            raise ValueError(f"found the options' letters in the order {letters}, expected {expected}")
    return _texts(options), False


def option_index(answer: str, options: Sequence[str], lettered: bool) -> int:
    """Return the index of the option that an answer names by letter, text or both.

    If the options had no letters, an option's text takes precedence over a letter.

    Args:
        answer: the answer as written.
        options: the options without letters.
        lettered: whether the options had letters.

    Raises:
        ValueError: the answer matches no option.
    """
    letter = _LETTER.fullmatch(answer)
    letter_index = None if letter is None else OPTION_LETTERS.index(_normalize(letter[1]))
    if letter_index is not None and letter_index >= len(options):
        letter_index = None
    comparable_answer = _comparable(answer)
    same = next((index for index, option in enumerate(options) if _comparable(option) == comparable_answer), None)
    if letter_index is not None and (lettered or same is None):
        return letter_index
    if same is None and (label := _LABEL.match(answer)):
        comparable_text = _comparable(answer[label.end() :])
        index = OPTION_LETTERS.index(_normalize(label[1]))
        same = index if index < len(options) and _comparable(options[index]) == comparable_text else None
    if same is not None:
        return same
    letters = f"{OPTION_LETTERS[0]} to {OPTION_LETTERS[len(options) - 1]}"
    raise ValueError(f"found the answer {answer!r}, expected a letter {letters}, or the text of an option: {options!r}")


def _texts(options: Sequence[str]) -> tuple[str, ...]:
    texts = tuple(option.strip() for option in options)
    if not all(texts):
        raise ValueError("found an empty option")
    first: dict[str, int] = {}
    for index, text in enumerate(texts):
        # The letter of either would be the right answer, and the other is graded as wrong.
        if (before := first.setdefault(_comparable(text), index)) != index:
            letters = f"{OPTION_LETTERS[before]} and {OPTION_LETTERS[index]}"
            raise ValueError(f"found {text[:100]!r} as options {letters}, expected options that differ")
    return texts


def _normalize(letter: str) -> str:
    return unicodedata.normalize("NFKC", letter).upper()


def _comparable(text: str) -> str:
    """Normalize a text: options that differ in character width or outer spaces only are equal."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
