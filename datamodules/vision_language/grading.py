"""Grades a free-form answer: exact match and token F1."""

import re
from collections import Counter

OUTCOMES = ("exact", "token_f1")

# In scripts without spaces between words, each character is a token.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


def grade(right: str, text: str) -> dict[str, tuple[float, float]]:
    """Return {outcome: (points reached, points possible)} of an answer.

    `exact`: equal except for case, white space and a final period. `token_f1`: harmonic mean of the precision and the
    recall of the words (Rajpurkar et al., "SQuAD", 2016).

    Args:
        right: the reference.
        text: the answer.
    """
    exact = float(_plain(right) == _plain(text))
    return {"exact": (exact, 1.0), "token_f1": (_token_f1(right, text, exact), 1.0)}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".\u3002").rstrip()


def _token_f1(right: str, text: str, exact: float) -> float:
    expected, found = (Counter(_WORD.findall(words.casefold())) for words in (right, text))
    if not expected or not found:  # only punctuation
        return exact
    shared = (expected & found).total()
    return 2 * shared / (expected.total() + found.total())
