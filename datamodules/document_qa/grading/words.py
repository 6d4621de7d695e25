"""How alike two answers are in their words: exact match, token and character F1, ANLS."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# Scripts without spaces between words count character by character.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")

# "3.5 A" is a current, "part a" a part: an article stands before another word and not behind a number.
_ARTICLE = re.compile(r"(?<![\d.%]\s)\b(?:a|an|the)\b(?=\s+\w)")

# 1:50 is not 150, 10-20 not 1020, A+ not A-, <5 not >5; the hyphen of left-hand and the colon of a heading say nothing.
_TELLS_APART = re.compile(
    r"(?<=\d)[.,](?=\d)|(?<![^\W_])[-+](?=[\d.])|[%\u2030]|°|(?<=\d)(?:\s*[-:]\s*)(?=\d)|(?<=[^\W_])-(?!\s*\w)"
    r"|(?<=[^\W_])(?:\s*[/+]\s*)(?=[^\W_])|(?<=[^\W_])\++|\+(?=\s*[^\W_])|[<>](?=\s*[-+.]?[^\W_])|(?<=[^\W_])[<>]"
)
_ONE_FORM = str.maketrans({"\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2013": "-", "\u2044": "/"})

# Which the same form of all characters would join to the number before it: 10² is not 102, 2½ not 21/2.
_RAISED = re.compile("(?<=\\d)(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹¼½¾⅐-⅞])")


def normalised(text: str) -> str:
    """A text as answers are compared: without case, punctuation, articles and doubled spaces.

    As in Rajpurkar et al., "SQuAD", 2016, but what tells answers apart stays (their script reads 3.5 as 35), and forms
    of a character that mean the same (full width, half width) are one, as Chinese texts need it.
    """
    text = unicodedata.normalize("NFKC", _RAISED.sub(" ", text)).casefold().translate(_ONE_FORM)
    kept = {place for match in _TELLS_APART.finditer(text) for place in range(*match.span())}
    text = "".join(" " if _is_punctuation(mark) and at not in kept else mark for at, mark in enumerate(text))
    return " ".join(_ARTICLE.sub(" ", " ".join(text.split())).split())


def tokens(text: str) -> list[str]:
    """The words of a text, normalised; Chinese and Japanese ones character by character."""
    return _WORD.findall(normalised(text))


def exact_match(right: str, said: str) -> float:
    """1 where two answers are the same once normalised, else 0 (Rajpurkar et al., "SQuAD", 2016).

    Spaces do not count but between digits: "3.5 A" is "3.5A". Answers of signs alone are compared as they are.
    """
    return float(_comparable(right) == _comparable(said))


def token_f1(right: str, said: str) -> float:
    """The harmonic mean of the shares of words that both answers have (Rajpurkar et al., "SQuAD", 2016)."""
    return _overlap(tokens(right), tokens(said))


def character_f1(right: str, said: str) -> float:
    """The same of characters, without spaces; usual for Chinese."""
    return _overlap(_characters(right), _characters(said))


def anls(right: str, said: str, tau: float = 0.5) -> float:
    """Normalised Levenshtein similarity, 0 below `tau` (Biten et al., "Scene Text Visual Question Answering", 2019).

    It forgives misread characters. It is no figure to select a model by: "part 4 is to the left of part 5" gets 0.87
    for "right", and 35 A gets 0.8 for 3.5 A.
    """
    right, said = (" ".join(text.casefold().split()) for text in (right, said))
    longest = max(len(right), len(said))
    similarity = 1.0 - edit_distance(right, said) / longest if longest else 1.0
    return similarity if similarity >= tau else 0.0


def edit_distance(first: str, second: str) -> int:
    """Insertions, deletions and replacements of characters that make one text the other.

    A column of the table of distances at a time, as bits of one integer (Myers, "A fast bit-vector algorithm for
    approximate string matching", 1999; in the form of Hyyrö, 2001).
    """
    if not first:
        return len(second)
    places: dict[str, int] = {}
    for place, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << place
    whole, last = (1 << len(first)) - 1, 1 << len(first) - 1
    up, down, distance = whole, 0, len(first)
    for character in second:
        same = places.get(character, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        right_up, right_down = down | ~(diagonal | up) & whole, up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = right_up << 1 | 1
        up, down = (right_down << 1 | ~(diagonal | right_up)) & whole, right_up & diagonal & whole
    return distance


def _is_punctuation(mark: str) -> bool:
    return mark in "$+<=>^`|~°" or unicodedata.category(mark).startswith("P")


def _characters(text: str) -> str:
    return "".join(normalised(text).split())


def _comparable(text: str) -> str:
    # Taken out, not put together: a space between two digits is all that is left of what stood there.
    return re.sub(r"(?<!\d) | (?!\d)", "", normalised(text)) or "".join(text.split())


def _overlap(right: Iterable[str], said: Iterable[str]) -> float:
    expected, found = Counter(right), Counter(said)
    if not expected or not found:  # punctuation alone
        return float(expected == found)
    return 2 * (expected & found).total() / (expected.total() + found.total())
