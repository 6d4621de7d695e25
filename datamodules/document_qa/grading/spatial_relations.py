"""Parses relations between two parts in English or Chinese texts: "17 is to the right of 18"."""

import re
import unicodedata
from typing import NamedTuple

_ACROSS = {"left": -1, "right": 1, "左": -1, "右": 1}
_DOWN = {
    "above": -1, "over": -1, "top": -1, "upper": -1, "up": -1, "上": -1,
    "below": 1, "under": 1, "underneath": 1, "beneath": 1, "bottom": 1, "lower": 1, "down": 1, "下": 1,
}  # fmt: skip

_DIRECTION = rf"(?:{'|'.join(word for word in (*_ACROSS, *_DOWN) if word.isascii())})"
_BETWEEN = r"(?:[\s,/-]|and|to|the|on|at|of|it|side|hand)*"
_BEFORE = (
    r"(?:\s*\b(?:is|are|lies|lie|sits|located|positioned|placed|situated|mounted|found|directly|just|slightly|further|"
    r"to|on|at|in|the|its|towards?)\b)*\s*"
)
_AFTER = r"(?:\s*\b(?:-?hand|side|corner|part|position|direction|of|from|relative to|with respect to|than|the)\b)*\s*"
_ENGLISH = re.compile(
    rf"(?P<first>.*?){_BEFORE}\b(?P<direction>{_DIRECTION}(?:{_BETWEEN}\b{_DIRECTION})?)\b(?P<after>{_AFTER})"
    r"(?P<second>.*)",
    re.DOTALL,
)

_CHINESE_DIRECTION = r"(?P<direction>[左右][上下]|[上下][左右]|[左右上下])(?:[侧边方面部端角]|侧方)?"
_STRAIGHT = "(?:的|之)?(?:正|斜)?"
_LIES = "(?:位于|处于|设于|设置在|设置于|布置在|布置于|安装在|在|于)"
_CHINESE = [
    re.compile(pattern)
    for pattern in (
        rf"{_STRAIGHT}{_CHINESE_DIRECTION}",
        rf"(?P<first>.+?)?{_LIES}(?P<second>.*?){_STRAIGHT}{_CHINESE_DIRECTION}",
        rf"(?P<second>.+?){_STRAIGHT}{_CHINESE_DIRECTION}(?:是|为)(?P<first>.+)",
        rf"(?P<second>.+?){_STRAIGHT}{_CHINESE_DIRECTION}",
    )
]
_SAYS_A_DIRECTION = re.compile(rf"\b{_DIRECTION}\b|[左右上下]")
_LIMIT = re.compile("以[上下]")  # "or more" and "or less", behind a number
_NOT = re.compile(r"\b(?:not|neither|nor)\b|n't\b|不[在位是处]|并非|没有")

_FILLING = re.compile(
    r"\b(?:the|a|an|part|component|element|item|number|no|numbered|labelled|labeled|it)\b|[^\w]|编号|部件|为|的|它"
)


class Relation(NamedTuple):
    """The position of `first` relative to `second`."""

    across: int  # -1 left, 1 right, 0 unknown
    down: int  # -1 above, 1 below, 0 unknown
    first: str  # "" if it is not named
    second: str


def parse_relation(text: str) -> Relation | None:
    """Parse a relation: "17 is to the right of 18", "right", "17位于18的右侧"; None if the text is not a relation."""
    text = unicodedata.normalize("NFKC", text).casefold().strip().rstrip(".。!")
    if _NOT.search(text) or _LIMIT.search(text):
        return None
    match = _ENGLISH.fullmatch(text) or next(
        (found for pattern in _CHINESE if (found := pattern.fullmatch(text))), None
    )
    if match is None:
        return None
    words = _SAYS_A_DIRECTION.findall(match["direction"])
    first, second = (match.groupdict().get(side) or "" for side in ("first", "second"))
    if _SAYS_A_DIRECTION.search(f"{first} {second}"):
        return None  # several statements
    across = {_ACROSS[word] for word in words if word in _ACROSS}
    down = {_DOWN[word] for word in words if word in _DOWN}
    if len(across) > 1 or len(down) > 1 or len(words) > len(across) + len(down):
        return None  # contradictions and repetitions: "left, no, right", "above over"
    return Relation(next(iter(across), 0), next(iter(down), 0), _name(first), _name(second))


def same_relation(expected_text: str, predicted: str, question: str = "") -> float:
    """Return 1 if an answer states the same relation of the same parts, in either direction, else 0.

    "17 is to the right of 18" equals "18 is left of 17", but not "18 is right of 17". An answer that names no part, or
    one, refers to the parts in the order of the question.

    Args:
        expected_text: the right answer; if it is not a relation, the result is 0.
        predicted: the answer.
        question: determines the order of the parts if only one of the two answers names them.
    """
    expected, found = parse_relation(expected_text), parse_relation(predicted)
    if expected is None or found is None:
        return 0.0
    # The other text is compared with the text that names both parts.
    if not (expected.first and expected.second):
        expected, found = found, expected
    same, turned = found[:2] == expected[:2], found[:2] == (-expected.across, -expected.down)
    if found.first and found.second:
        if (found.first, found.second) == (expected.first, expected.second):
            return float(same)
        return float(turned and (found.first, found.second) == (expected.second, expected.first))
    if found.first not in ("", expected.first) or found.second not in ("", expected.second):
        return float(turned and found.first in ("", expected.second) and found.second in ("", expected.first))
    return float(turned if not found.first and not found.second and _asked_turned(expected, question) else same)


def _asked_turned(relation: Relation, question: str) -> bool:
    """Return whether a question names the two parts in reverse order."""
    if not relation.first or not relation.second:
        return False
    text = unicodedata.normalize("NFKC", question).casefold()
    first, second = (_last_offset(text, name) for name in (relation.first, relation.second))
    return 0 <= second < first


def _last_offset(text: str, name: str) -> int:
    """Return the last position of a name as a whole word, or -1; numbers of pages precede parts in questions."""
    is_number = re.fullmatch(r"\d+(?:\.\d+)*", name)
    begin, end = (r"(?<!\d)(?<!\d\.)", r"(?!\d|\.\d)") if is_number else (r"(?<![^\W_])", "")
    pattern = f"{begin}{re.escape(name)}{end}"
    return max((match.start() for match in re.finditer(pattern, text)), default=-1)


def _name(text: str) -> str:
    """Normalize a part's name: its last number, as in "the pump (10)", else its words."""
    numbers = re.findall(r"\d+(?:\.\d+)*", text)
    return numbers[-1] if numbers else " ".join(_FILLING.sub(" ", text).split())
