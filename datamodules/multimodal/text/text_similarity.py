"""Measures the similarity of two answers as text: exact match, token and character F1, ANLS."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# In scripts without spaces between words, each character counts as a token.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")

# An article precedes another word and does not follow a number: "3.5 A" is a current, and "A 相" a phase.
_ARTICLE = re.compile(rf"(?<![\d.%]\s)\b(?:a|an|the)\b(?=\s+[^\W{_UNSPACED}])")

# Punctuation with meaning: 1:50 is not 150, 10-20 not 1020, A+ not A-, <5 not >5, 1e-5 not 1e5, .5 not 5, -Vcc not Vcc,
# C# not C. Others, as in left-hand, have none.
_TELLS_APART = re.compile(
    r"(?<=\d)[.,](?=\d)|(?:(?<![^\W_])|(?<=[至到为是]))[-+](?=[\d.])|[%\u2030]|°"
    r"|(?<=\d)(?:\s*[-:]\s*)(?=\d)|(?<=[^\W_])-(?!\s*\w)"
    r"|(?<=[^\W_])(?:\s*[/+]\s*)(?=[^\W_])|(?<=[^\W_])\++|\+(?=\s*[^\W_])|[<>](?=\s*[-+.]?[^\W_])|(?<=[^\W_])[<>]"
    r"|(?<=\de)[-+](?=\d)|(?<![^\W_])(?:\.(?=\d)|-(?=[a-z]{1,3}\b))|(?<=[^\W_])#(?!\s*\d)"
)
_SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "+/-": "±", "+-": "±"}
_ONE_FORM = str.maketrans({"\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2013": "-", "\u2044": "/"})

# A dash is a minus sign where no number precedes it: "- 40 °C", "from – 5 to 5 V". Of several lines, it begins items.
_MINUS = re.compile(
    r"(\A\s*(?=[^\n]*\Z)|[(:：至到为是][^\S\n]*|\b(?:to|from|and|between|is|of|at)[^\S\n]+)"
    r"[-\u2010-\u2013\u2212][^\S\n]*(?=\.?\d)",
    re.IGNORECASE,
)

# NFKC would join these characters to the number before them: 10² is not 102, 2½ is not 21/2.
_RAISED = re.compile("(?<=\\d)(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹¼½¾⅐-⅞])")


def normalize_text(text: str) -> str:
    """Normalize a text for comparison: without case, punctuation, articles and repeated spaces.

    As in Rajpurkar et al., "SQuAD", 2016, with two differences: punctuation with meaning is kept (their script reads
    3.5 as 35), and character widths are normalized, which Chinese texts need.
    """
    text = join_minus(unicodedata.normalize("NFKC", _RAISED.sub(" ", text)).casefold().translate(_ONE_FORM))
    for written, sign in _SIGNS.items():
        text = text.replace(written, sign)
    distinctive = {position for match in _TELLS_APART.finditer(text) for position in range(*match.span())}
    text = "".join(" " if _is_punctuation(mark) and at not in distinctive else mark for at, mark in enumerate(text))
    return " ".join(_ARTICLE.sub(" ", " ".join(text.split())).split())


def join_minus(text: str) -> str:
    """Write minus signs as hyphens without a space before the number: "- 40 °C" is "-40 °C"."""
    return _MINUS.sub(r"\1-", text)


def tokens(text: str) -> list[str]:
    """Return the words of a normalized text; of Chinese and Japanese, the characters."""
    return _WORD.findall(normalize_text(text))


def exact_match(expected: str, predicted: str) -> float:
    """Return 1 if two answers are equal after normalization, else 0 (Rajpurkar et al., "SQuAD", 2016).

    Only spaces between digits count: "3.5 A" equals "3.5A". Answers of punctuation only are compared as they are.
    """
    return float(_comparable(expected) == _comparable(predicted))


def token_f1(expected: str, predicted: str) -> float:
    """Return the F1 score of the words of two answers (Rajpurkar et al., "SQuAD", 2016)."""
    return _overlap(tokens(expected), tokens(predicted))


def character_f1(expected: str, predicted: str) -> float:
    """Return the F1 score of the characters of two answers, without spaces; common for Chinese."""
    return _overlap(_characters(expected), _characters(predicted))


def anls(expected: str, predicted: str, tau: float = 0.5) -> float:
    """Return the normalized Levenshtein similarity, 0 below `tau` (Biten et al., "Scene Text VQA", 2019).

    It tolerates misread characters. It is not suitable for model selection: "part 4 is to the left of part 5" scores
    0.87 for "right", and 35 A scores 0.8 for 3.5 A.
    """
    expected, predicted = (" ".join(text.casefold().split()) for text in (expected, predicted))
    longest = max(len(expected), len(predicted))
    similarity = 1.0 - edit_distance(expected, predicted) / longest if longest else 1.0
    return similarity if similarity >= tau else 0.0


def edit_distance(first: str, second: str) -> int:
    """Return the Levenshtein distance of two texts.

    The table of distances is computed one column at a time, as the bits of an integer (Myers, "A fast bit-vector
    algorithm for approximate string matching", 1999; in the form of Hyyrö, 2001).
    """
    if not first:
        return len(second)
    positions: dict[str, int] = {}
    for position, character in enumerate(first):
        positions[character] = positions.get(character, 0) | 1 << position
    # Bits of `up` and `down`: rows whose distance is 1 larger or smaller than in the row above. Bits of `right_up` and
    # `right_down`: likewise, than in the previous column. `distance` follows the last row.
    mask, last = (1 << len(first)) - 1, 1 << len(first) - 1
    up, down, distance = mask, 0, len(first)
    for character in second:
        same = positions.get(character, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        # Python's integers have no fixed width, so the result of ~ is cut with `mask`.
        right_up, right_down = down | ~(diagonal | up) & mask, up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = right_up << 1 | 1
        up, down = (right_down << 1 | ~(diagonal | right_up)) & mask, right_up & diagonal & mask
    return distance


def _is_punctuation(mark: str) -> bool:
    return mark in "$+<=>^`|~°" or unicodedata.category(mark).startswith("P")


def _characters(text: str) -> str:
    return "".join(normalize_text(text).split())


def _comparable(text: str) -> str:
    # Removes all spaces but those between two digits, which separate numbers.
    return re.sub(r"(?<!\d) | (?!\d)", "", normalize_text(text)) or "".join(text.split())


def _overlap(expected_items: Iterable[str], predicted_items: Iterable[str]) -> float:
    expected, found = Counter(expected_items), Counter(predicted_items)
    if not expected or not found:  # punctuation only
        return float(expected == found)
    return 2 * (expected & found).total() / (expected.total() + found.total())
