"""The options of a choice question as people write them: with letters or without, answered by either."""

import re
import unicodedata
from collections.abc import Sequence

_LABEL = re.compile(r"\s*[(（]?\s*([A-Za-zＡ-Ｚａ-ｚ])\s*[)）]?\s*[.．。、:：)）]\s*")
"""`A. `, `A)`, `(A) `, `Ａ．`, `A、` and what comes close."""

_LETTER = re.compile(r"\s*[(（]?\s*([A-Za-zＡ-Ｚａ-ｚ])\s*[)）]?\s*[.．。、:：]?\s*")

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def without_letters(options: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The options' texts, and whether letters stood before them.

    Letters are taken for such where each option has the one of its place; else they belong to the texts.

    Raises:
        ValueError: more options than letters, an option without a text, or letters out of order.
    """
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(f"found {len(options)} options, expected 2 to {len(LETTERS)}, or none of an open question")
    found = [_LABEL.match(option) for option in options]
    if all(found):
        letters = "".join(_plain(label[1]) for label in found if label)
        expected = LETTERS[: len(options)]
        if letters == expected:
            return tuple(_text(option[label.end() :]) for option, label in zip(options, found, strict=True)), True
        if sorted(letters) == sorted(expected):
            raise ValueError(f"found the options' letters in the order {letters}, expected {expected}")
    texts = tuple(map(_text, options))
    return texts, False


def place_of(answer: str, options: Sequence[str], lettered: bool) -> int:
    """Which option an answer is: it may be the letter, the text, or both.

    Where the options were written without letters, an option's text comes before a letter.

    Args:
        answer: as it is written.
        options: without their letters.
        lettered: they had letters.

    Raises:
        ValueError: it is none of them, or two of the same text.
    """
    letter = _LETTER.fullmatch(answer)
    named = None if letter is None else LETTERS.index(_plain(letter[1]))
    if named is not None and named >= len(options):
        named = None
    wanted = _comparable(answer)
    same = [place for place, option in enumerate(options) if _comparable(option) == wanted]
    if named is not None and (lettered or not same):
        return named
    if not same and (label := _LABEL.match(answer)):
        rest = _comparable(answer[label.end() :])
        place = LETTERS.index(_plain(label[1]))
        same = [place] if place < len(options) and _comparable(options[place]) == rest else []
    if len(same) == 1:
        return same[0]
    if same:
        both = " and ".join(LETTERS[place] for place in same)
        raise ValueError(f"found the answer {answer!r}, which options {both} both say; expected a letter")
    letters = f"{LETTERS[0]} to {LETTERS[len(options) - 1]}"
    raise ValueError(f"found the answer {answer!r}, expected a letter {letters}, or the text of an option: {options!r}")


def _text(option: str) -> str:
    text = option.strip()
    if not text:
        raise ValueError("found an option without a text")
    return text


def _plain(letter: str) -> str:
    return unicodedata.normalize("NFKC", letter).upper()


def _comparable(text: str) -> str:
    """Texts that differ by width of characters or by spaces at the ends are the same option."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
