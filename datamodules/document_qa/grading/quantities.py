"""Parses numbers with units."""

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from datamodules.document_qa.grading.units import Unit, normal_form, parse_unit
from datamodules.multimodal.text.text_similarity import join_minus

_DIGITS = (
    r"\d{1,3}(?:[,' \u00a0\u202f]\d{3})+(?:[.,]\d+)?(?![\d])"  # 1,234.5 and 1 234,5
    r"|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?(?!\d)|\d{1,3}(?:\.\d{3})+,\d+(?!\d)"  # 1.234.567 and 1.234,5
    r"|\d+(?:[.,]\d+)?|\.\d+"
)
# Digits in a name such as M8 are not a number; a hyphen between two numbers is not a sign.
NUMBER = re.compile(
    rf"(?<![A-Za-z\d_.,^])(?P<sign>(?:(?<![\w)])|(?<=[至到为是]))[-+\u2212])?(?P<digits>{_DIGITS})"
    r"(?:\s*[x×*·]\s*10\s*(?:\^\s*(?P<power>[-+\u2212]?\d+)|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))"
    r"|[eE](?P<exponent>[-+]?\d+))?"
    r"(?:\s*(?P<multiple>(?:thousand|million|billion|trillion)\b|百万|万(?![向用能])|亿))?",
    re.IGNORECASE,
)
_MULTIPLES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12, "百万": 6, "万": 4, "亿": 8}
"""Powers of ten of the words after a number."""
_RAISED = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹\u2212", "-+0123456789-")
_UNIT = re.compile(r"\s*((?:[^\W\d_]|[°%‰\"/·*⋅^μΩ⁻⁰¹²³⁴⁵⁶⁷⁸⁹\u2126℃℉º˚″×-]|(?<=\w)[1-9]\b| (?=\w))+)")

# A word after a number that is not a unit is what it counts: "5 teeth". Chinese has a measure word between: "5个齿".
_COUNTED = re.compile(r"[\s-]*[个只颗件台根条片块张次项种]?([^\W\d_]*)")
_NOT_COUNTED = frozenset([
    "and", "or", "to", "of", "at", "on", "by", "as", "for", "from", "with", "through", "per", "x", "st", "nd",
    "rd", "th", "is", "are", "was", "were", "if", "when", "than",
    "至", "到", "和", "或", "与", "以上", "以下",
])  # fmt: skip

BOUND = re.compile(r"([<>±≤≥])\s*$")
BOUNDS_IN_SIGNS = {r"<=|[⩽≦]": "≤", r">=|[⩾≧]": "≥", r"\+\s?/\s?[-\u2212]|\+[-\u2212]": "±"}
"""Patterns of bounds in signs, and the signs that `BOUND` has."""
_IN_TWO_UNITS: Mapping[tuple[tuple[str, int], ...], re.Pattern[str]] = {
    (("kg", 1),): re.compile(r"\s*"),
    (("m", 1),): re.compile(r"\s*"),
    (("s", 1),): re.compile(r"\s*(?:and\s+|零|又)?", re.IGNORECASE),
}
"""Patterns between the parts of a quantity in two units, by base units: 1 h 30 min, 1小时零5分钟, 1 m 20 cm.

Quantities of other kinds are not given in two units: "2 kV and 500 V" are two.
"""
_IN_A_WORD = re.compile(r"\s|[A-Za-z\d][A-Za-z\d]")

_LONGEST_UNIT = 40


class Quantity(NamedTuple):
    """A number of an answer with its unit, as parsed by `quantities`."""

    number: float
    unit: Unit | None  # None if no known unit follows
    bound: str = ""  # "<", ">", "±", "≤" or "≥" before the number
    counted: str = ""  # the word that follows in place of a unit, without a plural s

    @property
    def in_base_units(self) -> float:
        """The number in base units; unchanged without a unit."""
        return self.number if self.unit is None else self.number * self.unit.factor + self.unit.zero


def quantities(text: str) -> list[Quantity]:
    """Parse all numbers of a text with their units, in their order.

    Thousands may be separated by commas, points, spaces or apostrophes, decimals by a point or a comma. A single comma
    before three digits separates thousands (1,234 is 1234), a single point decimals (1.234). A quantity in two units,
    such as "1 h 30 min", is one quantity in the first unit, 1.5 h.
    """
    return [quantity for quantity, _ in _quantities_with_ends(replace_signs(half_width(text), BOUNDS_IN_SIGNS))]


def is_quantity(text: str) -> bool:
    """Return whether a text is a single number, with or without a unit, and nothing else."""
    text = half_width(text).strip().rstrip(".\u3002")
    match = NUMBER.match(text)
    if match is None:
        return False
    unit_text = normal_form(text[match.end() :]).strip()
    if not unit_text or parse_unit(unit_text) is not None:
        return True
    found = _quantities_with_ends(text)
    return len(found) == 1 and found[0][1] == len(text)


def _quantities_with_ends(text: str) -> list[tuple[Quantity, int]]:
    """Parse the quantities of a text, each with the position behind its unit."""
    found: list[tuple[Quantity, int]] = []
    previous: Quantity | None = None
    for match in NUMBER.finditer(text):
        quantity, end = _quantity(text, match)
        if previous is not None and _continues(previous, quantity, text, found[-1][1], match.start()):
            found[-1] = _add(found[-1][0], quantity), end
        else:
            found.append((quantity, end))
        previous = quantity
    return found


def _continues(first: Quantity, second: Quantity, text: str, end: int, start: int) -> bool:
    """Return whether two quantities are one: a whole number of a unit, and less than one such unit.

    The text between them begins at `end` and ends before `start`.
    """
    if first.unit is None or second.unit is None or second.bound or first.unit.bases != second.unit.bases:
        return False
    between = _IN_TWO_UNITS.get(first.unit.bases)
    if between is None or not between.fullmatch(text, end, start):
        return False
    return first.number.is_integer() and 0 <= second.in_base_units < first.unit.factor


def _add(first: Quantity, second: Quantity) -> Quantity:
    """Return a quantity and its part in a smaller unit, as one quantity."""
    factor = 1.0 if first.unit is None else first.unit.factor
    return first._replace(number=first.number + math.copysign(second.in_base_units / factor, first.number))


def _quantity(text: str, match: re.Match[str]) -> tuple[Quantity, int]:
    bound, (unit, end) = BOUND.search(text, max(0, match.start() - 4), match.start()), _unit_at(text, match.end())
    counted = _COUNTED.match(text, match.end()) if unit is None else None
    word = "" if counted is None else counted[1].casefold()
    word = "" if word in _NOT_COUNTED else word.removesuffix("s")
    return Quantity(_parse_value(match), unit, "" if bound is None else bound[1], word), end


def replace_signs(text: str, signs: Mapping[str, str]) -> str:
    """Replace what matches each pattern, in any case, by its sign."""
    for written, sign in signs.items():
        text = re.sub(written, sign, text, flags=re.IGNORECASE)
    return text


def half_width(text: str) -> str:
    """Return a text in half width, with its minus signs as hyphens before the numbers."""
    # Superscripts and unit signs are kept, as NFKC would turn them into plain digits and letters.
    marks = (unicodedata.normalize("NFKC", mark) if "\uff00" <= mark <= "\uffef" else mark for mark in text)
    return join_minus("".join(marks))


def _parse_value(match: re.Match[str]) -> float:
    power = (match["power"] or match["raised"] or match["exponent"] or "0").translate(_RAISED)
    sign = -1.0 if match["sign"] in ("-", "\u2212") else 1.0
    try:
        exponent = int(power) + _MULTIPLES.get((match["multiple"] or "").casefold(), 0)
        return sign * float(f"{_to_python_syntax(match['digits'])}e{exponent}")
    except (ValueError, OverflowError):
        # NaN equals no number, so such an answer is wrong and raises nothing.
        return math.nan


def _to_python_syntax(digits: str) -> str:
    """Return a number in Python's syntax."""
    digits = re.sub("['\\s\u00a0\u202f]", "", digits)
    points, commas = digits.count("."), digits.count(",")
    if points and commas:
        thousands = "," if digits.rindex(".") > digits.rindex(",") else "."
        return digits.replace(thousands, "").replace(",", ".")
    if points > 1:
        return digits.replace(".", "")
    if commas > 1 or re.fullmatch(r"[1-9]\d{0,2},\d{3}", digits):
        return digits.replace(",", "")
    return digits.replace(",", ".")


def _unit_at(text: str, start: int) -> tuple[Unit | None, int]:
    """Return the longest unit at a position and the position behind it."""
    match = _UNIT.match(text, start, start + _LONGEST_UNIT)
    if match is None:
        return None, start
    candidate = match[1]
    for end in range(len(candidate), 0, -1):
        # A unit ends at the end of a word; Chinese has no spaces.
        if not _IN_A_WORD.match(candidate, end - 1) and (unit := parse_unit(normal_form(candidate[:end]))) is not None:
            return unit, match.start(1) + end
    return None, start
