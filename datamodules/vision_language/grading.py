"""How right a free answer is: the same words, or how many of them."""

import re
from collections import Counter

OUTCOMES = ("exact", "token_f1")

# Scripts without spaces between words count character by character.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


def grade(right: str, text: str) -> dict[str, tuple[float, float]]:
    """{outcome: (points reached, points possible)} of an answer.

    `exact`: the same but for case, spaces and a final period. `token_f1`: the harmonic mean of how many of the
    answer's words are right and how many of the right ones it has (Rajpurkar et al., "SQuAD", 2016).
    """
    exact = float(_plain(right) == _plain(text))
    return {"exact": (exact, 1.0), "token_f1": (_token_f1(right, text, exact), 1.0)}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".\u3002").rstrip()


def _token_f1(right: str, text: str, exact: float) -> float:
    expected, said = (Counter(_WORD.findall(one.casefold())) for one in (right, text))
    if not expected or not said:  # punctuation alone
        return exact
    shared = (expected & said).total()
    return 2 * shared / (expected.total() + said.total())
