"""Where one part is from another, as a text says it: in English or Chinese, from either side."""

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
_NOT = re.compile(r"\b(?:not|neither|nor)\b|n't\b|不[在位是处]|并非|没有")

_FILLING = re.compile(
    r"\b(?:the|a|an|part|component|element|item|number|no|numbered|labelled|labeled|it)\b|[^\w]|编号|部件|为|的|它"
)


class Relation(NamedTuple):
    """Where `first` is, seen from `second`."""

    across: int  # -1 left, 1 right, 0 not said
    down: int  # -1 above, 1 below, 0 not said
    first: str  # "" where it is not named
    second: str


def parse_relation(text: str) -> Relation | None:
    """What a text says, "17 is to the right of 18" as well as "right" or "17位于18的右侧"; None: nothing of the kind."""
    text = unicodedata.normalize("NFKC", text).casefold().strip().rstrip(".。!")
    if _NOT.search(text):
        return None
    match = _ENGLISH.fullmatch(text) or next((found for one in _CHINESE if (found := one.fullmatch(text))), None)
    if match is None:
        return None
    words = _SAYS_A_DIRECTION.findall(match["direction"])
    first, second = (match.groupdict().get(side) or "" for side in ("first", "second"))
    if _SAYS_A_DIRECTION.search(f"{first} {second}"):
        return None  # it says more than one thing
    across = {_ACROSS[word] for word in words if word in _ACROSS}
    down = {_DOWN[word] for word in words if word in _DOWN}
    if len(across) > 1 or len(down) > 1 or len(words) > len(across) + len(down):
        return None  # "left, no, right", and "above over" are no places
    return Relation(*(next(iter(one), 0) for one in (across, down)), _name(first), _name(second))


def same_relation(right: str, said: str, question: str = "") -> float:
    """1 where an answer says of the same two parts the same, from whichever side; else 0.

    "17 is to the right of 18" is "18 is left of 17", not "18 is right of 17". Who names no part, or one, speaks of the
    parts in the order in which they are asked about.

    Args:
        right: the right answer; one that says nothing about places is never met.
        said: an answer.
        question: it tells the order where only one of both answers names the parts.
    """
    expected, found = parse_relation(right), parse_relation(said)
    if expected is None or found is None:
        return 0.0
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
    """Whether a question names the two parts in the other order."""
    if not relation.first or not relation.second:
        return False
    text = unicodedata.normalize("NFKC", question).casefold()
    first, second = (_last_place(text, name) for name in (relation.first, relation.second))
    return 0 <= second < first


def _last_place(text: str, name: str) -> int:
    """Where a name is last in a text as a whole word; -1: nowhere. Numbers of pages come first in questions."""
    whole = rf"(?<!\d){re.escape(name)}(?!\d)" if name.isdigit() else rf"(?<![^\W_]){re.escape(name)}"
    return max((match.start() for match in re.finditer(whole, text)), default=-1)


def _name(text: str) -> str:
    """A part's name as it is compared: its number where it has one, as in "the pump (10)"."""
    numbers = re.findall(r"\d+", text)
    return numbers[-1] if numbers else " ".join(_FILLING.sub(" ", text).split())
