"""Numbers with units in a text, and whether two texts give the same ones."""

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from datamodules.document_qa.grading.units import Unit, normal_form, parse_unit
from datamodules.document_qa.grading.words import exact_match

_DIGITS = (
    r"\d{1,3}(?:[,' \u00a0\u202f]\d{3})+(?:[.,]\d+)?(?![\d])"  # 1,234.5 and 1 234,5
    r"|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?(?!\d)|\d{1,3}(?:\.\d{3})+,\d+(?!\d)"  # 1.234.567 and 1.234,5
    r"|\d+(?:[.,]\d+)?|\.\d+"
)
# Digits of a name such as M8 are no number; a hyphen between two numbers is no sign.
_NUMBER = re.compile(
    rf"(?<![A-Za-z\d_.,^])(?P<sign>(?<![\w)])[-+\u2212])?(?P<digits>{_DIGITS})"
    r"(?:\s*[x×*·]\s*10\s*(?:\^\s*(?P<power>[-+\u2212]?\d+)|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))"
    r"|[eE](?P<exponent>[-+]?\d+))?"
)
_RAISED = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹\u2212", "-+0123456789-")
_UNIT = re.compile(r"\s*((?:[^\W\d_]|[°%‰\"/·*⋅^μΩ⁻⁰¹²³⁴⁵⁶⁷⁸⁹\u2126℃℉º˚″×-]|(?<=\w)[1-9]\b| (?=\w))+)")

# A number followed by a word that is no unit, "5 teeth", counts those; Chinese puts a measure word between, "5个齿".
_COUNTED = re.compile(r"[\s-]*[个只颗件台根条片块张次项种]?([^\W\d_]*)")
_NOT_COUNTED = frozenset(
    "and or to of at on by as for from with through per x st nd rd th is are was were if when than".split()
    + "至 到 和 或 与 以上 以下".split()
)

_BOUND = re.compile(r"([<>±≤≥])\s*$")
_BOUNDS_IN_SIGNS = {r"<=|[⩽≦]": "≤", r">=|[⩾≧]": "≥", r"\+\s?/\s?[-\u2212]|\+[-\u2212]": "±"}
_BOUNDS_IN_WORDS = {
    r"\b(?:at most|up to|(?:no|not) (?:more|greater|higher) than|less than or equal to)\b|不(?:超过|大于|高于)|小于等于": "≤",
    r"\b(?:at least|(?:no|not) (?:less|lower) than|(?:more|greater) than or equal to)\b|不(?:少于|小于|低于)|大于等于|至少": "≥",
    r"\b(?:less|lower|smaller|fewer) than\b|小于|低于|少于": "<",
    r"\b(?:more|greater|higher|larger) than\b|大于|高于|多于": ">",
    r"\bplus or minus\b|正负": "±",
}

_IN_A_WORD = re.compile(r"\s|[A-Za-z\d][A-Za-z\d]")

_LONGEST_UNIT = 40


class Quantity(NamedTuple):
    """A number, and the unit that follows it in a text."""

    number: float
    unit: Unit | None  # None: none follows, or none that is known
    bound: str = ""  # "<", ">", "±", "≤" or "≥" where that stands before it
    counted: str = ""  # what follows in place of a unit, as a word without its plural's s

    @property
    def in_base_units(self) -> float:
        return self.number if self.unit is None else self.number * self.unit.factor + self.unit.zero


def quantities(text: str) -> list[Quantity]:
    """The numbers of a text with their units, in their order.

    Thousands may be set apart by commas, points, spaces or apostrophes, decimals by a point or a comma. Where only one
    sign is there, a comma before three digits sets thousands apart (1,234 is 1234), and a point decimals (1.234).
    """
    text = _with_signs(_half_width(text), _BOUNDS_IN_SIGNS)
    return [_quantity(text, match) for match in _NUMBER.finditer(text)]


def same_quantities(right: str, said: str, relative_tolerance: float = 0.0) -> float:
    """1 where an answer gives the right number in the right unit or in one that it can be converted to, else 0.

    3500 mA are 3.5 A; 35 A, 3.5 V and 3.5 are not, nor is < 3.5 A. A right answer without a unit says nothing about
    units, but what it counts an answer has to name, as in "5 teeth". Other words around the number do not count, but
    other numbers (of that kind of unit, where there is one) do: whoever says two of them has not answered. A right
    answer with several numbers, as "10 to 20 mm", wants all of them in their order.

    Args:
        right: the right answer; one without a number is compared as words.
        said: an answer.
        relative_tolerance: by what share of the right number an answer may be off.
    """
    if any(quantity.bound for text in (right, said) for quantity in quantities(text)):
        right, said = (_with_signs(text, _BOUNDS_IN_WORDS) for text in (right, said))
    wanted, found = _with_common_unit(quantities(right)), _with_common_unit(quantities(said))
    if any(quantity.unit is None and quantity.counted not in _half_width(said).casefold() for quantity in wanted):
        return 0.0
    if not wanted:
        return exact_match(right, said)
    if len(wanted) == 1 and wanted[0].unit is not None:
        found = [quantity for quantity in found if quantity.unit and quantity.unit.bases == wanted[0].unit.bases]
    if len(wanted) == 1:
        found = found[:1] if all(_same(found[0], other, 0.0) for other in found) else []
    pairs = zip(wanted, found, strict=False)
    return float(len(wanted) == len(found) and all(_same(one, other, relative_tolerance) for one, other in pairs))


def is_quantity(text: str) -> bool:
    """Whether a text is one number, with a unit or without one, and nothing else."""
    text = _half_width(text).strip().rstrip(".\u3002")
    match = _NUMBER.match(text)
    rest = "" if match is None else normal_form(text[match.end() :]).strip()
    return match is not None and (not rest or parse_unit(rest) is not None)


def _with_common_unit(found: list[Quantity]) -> list[Quantity]:
    """In "10 to 20 mm" the unit belongs to both numbers."""
    units = {quantity.unit for quantity in found} - {None}
    if len(found) < 2 or len(units) != 1 or found[-1].unit is None:
        return found
    return [quantity._replace(unit=found[-1].unit) for quantity in found]


def _same(right: Quantity, said: Quantity, relative_tolerance: float) -> bool:
    if right.bound != said.bound:
        return False
    if right.unit is None:
        return _close(right.number, said.number, relative_tolerance)
    if said.unit is None or right.unit.bases != said.unit.bases:
        return False
    return _close(right.in_base_units, said.in_base_units, relative_tolerance)


def _close(right: float, said: float, relative_tolerance: float) -> bool:
    # Conversion rounds in the sixteenth digit.
    return math.isclose(right, said, rel_tol=1e-9) or abs(right - said) <= relative_tolerance * abs(right)


def _quantity(text: str, match: re.Match[str]) -> Quantity:
    bound, unit = _BOUND.search(text, max(0, match.start() - 4), match.start()), _unit_at(text, match.end())
    counted = _COUNTED.match(text, match.end()) if unit is None else None
    word = "" if counted is None else counted[1].casefold()
    word = "" if word in _NOT_COUNTED else word.removesuffix("s")
    return Quantity(_value(match), unit, "" if bound is None else bound[1], word)


def _with_signs(text: str, signs: Mapping[str, str]) -> str:
    for written, sign in signs.items():
        text = re.sub(written, sign, text, flags=re.IGNORECASE)
    return text


def _half_width(text: str) -> str:
    # Not of raised digits and signs of units, which would become other digits and letters.
    return "".join(unicodedata.normalize("NFKC", mark) if "\uff00" <= mark <= "\uffef" else mark for mark in text)


def _value(match: re.Match[str]) -> float:
    power = (match["power"] or match["raised"] or match["exponent"] or "0").translate(_RAISED)
    sign = -1.0 if match["sign"] in ("-", "\u2212") else 1.0
    try:
        return sign * float(f"{_plain(match['digits'])}e{power}")
    except (ValueError, OverflowError):
        return math.nan


def _plain(digits: str) -> str:
    """A number as Python writes it."""
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


def _unit_at(text: str, start: int) -> Unit | None:
    """The longest unit that begins there."""
    match = _UNIT.match(text, start, start + _LONGEST_UNIT)
    if match is None:
        return None
    candidate = match[1]
    for end in range(len(candidate), 0, -1):
        # A unit ends where its word does; Chinese has no spaces.
        if not _IN_A_WORD.match(candidate, end - 1) and (unit := parse_unit(normal_form(candidate[:end]))) is not None:
            return unit
    return None
