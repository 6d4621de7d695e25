"""Parses numbers with units, and compares the quantities of two texts."""

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from datamodules.document_qa.grading.units import Unit, normal_form, parse_unit
from datamodules.multimodal.text.text_similarity import exact_match, join_minus

_DIGITS = (
    r"\d{1,3}(?:[,' \u00a0\u202f]\d{3})+(?:[.,]\d+)?(?![\d])"  # 1,234.5 and 1 234,5
    r"|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?(?!\d)|\d{1,3}(?:\.\d{3})+,\d+(?!\d)"  # 1.234.567 and 1.234,5
    r"|\d+(?:[.,]\d+)?|\.\d+"
)
# Digits in a name such as M8 are not a number; a hyphen between two numbers is not a sign.
_NUMBER = re.compile(
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

_BOUND = re.compile(r"([<>±≤≥])\s*$")
_BOUNDS_IN_SIGNS = {r"<=|[⩽≦]": "≤", r">=|[⩾≧]": "≥", r"\+\s?/\s?[-\u2212]|\+[-\u2212]": "±"}
_BOUNDS_IN_WORDS = {
    r"\b(?:at most|up to|(?:no|not) (?:more|greater|higher) than|less than or equal to)\b"
    r"|不(?:超过|大于|高于)|小于等于": "≤",
    r"\b(?:at least|(?:no|not) (?:less|lower) than|(?:more|greater) than or equal to)\b"
    r"|不(?:少于|小于|低于)|大于等于|至少": "≥",
    r"\b(?:less|lower|smaller|fewer) than\b|小于|低于|少于": "<",
    r"\b(?:more|greater|higher|larger) than\b|大于|高于|多于": ">",
    r"\bplus or minus\b|正负": "±",
}
_BOUND_BEHIND = re.compile(
    r"(\s*[^\s以及或]{0,10}?)\s*"
    r"(?:及?(?:(?P<most>以下|以内)|以上)|or (?:(?P<less>less|below|lower|under)|more|above|higher|over)\b)",
    re.IGNORECASE,
)
"""A unit and a bound in words behind it: 0.5 MPa以下, 3 V or more."""

_CURRENT = re.compile(r"(\d\s*[kmM]?V)(?=[AD]C(?![A-Za-z\d_]))", re.IGNORECASE)
"""A voltage whose kind of current is written without a space: 230 VAC, 24 VDC."""

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
    before three digits separates thousands (1,234 is 1234), a single point decimals (1.234).
    """
    text = _replace_signs(_plain(text), _BOUNDS_IN_SIGNS)
    return [_quantity(text, match) for match in _NUMBER.finditer(text)]


def same_quantities(expected: str, predicted: str, relative_tolerance: float = 0.0) -> float:
    """Return 1 if an answer has the right number in the right unit, or in a convertible unit, else 0.

    3500 mA equals 3.5 A; 35 A, 3.5 V, 3.5 and < 3.5 A do not. If the right answer has no unit, units are ignored, but
    the answer must name what is counted, as in "5 teeth". Other words are ignored. Other numbers (with the same kind of
    unit, if any) make an answer wrong, as it must be unique. A right answer with several numbers, such as
    "10 to 20 mm", requires all of them in order.

    Args:
        expected: the right answer; without a number it is compared by exact match.
        predicted: the answer.
        relative_tolerance: largest deviation as a fraction of the right number.
    """
    # Words such as "at most" become signs only if one of the two texts has a sign, or both have such words; otherwise
    # they are ignored.
    in_signs = [_bounds_in_signs(text) for text in (expected, predicted)]
    if any(map(_has_bound, (expected, predicted))) or all(map(_has_bound, in_signs)):
        expected, predicted = in_signs
    if not _CURRENT.search(expected):  # without a unit, VAC of the right answer is a word that the answer must have
        predicted = _CURRENT.sub(r"\1 ", predicted)
    references, answers = (_apply_common_unit(quantities(text)) for text in (expected, predicted))
    if any(quantity.unit is None and quantity.counted not in _plain(predicted).casefold() for quantity in references):
        return 0.0
    if not references:
        return exact_match(expected, predicted)
    if len(references) == 1 and references[0].unit is not None:
        answers = [
            quantity for quantity in answers if quantity.unit and quantity.unit.bases == references[0].unit.bases
        ]
    if len(references) == 1:
        answers = answers[:1] if all(_is_same(answers[0], other, 0.0) for other in answers) else []
    pairs = zip(references, answers, strict=False)
    return float(
        len(references) == len(answers) and all(_is_same(first, second, relative_tolerance) for first, second in pairs)
    )


def is_limit(text: str) -> bool:
    """Return whether a text is a bound of a quantity and nothing else: "< 5 V", "up to 1.5 MPa", "0.5 MPa以下"."""
    text = _bounds_in_signs(_plain(text).strip())
    return text[:1] in tuple("<>±≤≥") and is_quantity(text[1:])


def is_quantity(text: str) -> bool:
    """Return whether a text is a single number, with or without a unit, and nothing else."""
    text = _plain(text).strip().rstrip(".\u3002")
    match = _NUMBER.match(text)
    unit_text = "" if match is None else normal_form(text[match.end() :]).strip()
    return match is not None and (not unit_text or parse_unit(unit_text) is not None)


def _bounds_in_signs(text: str) -> str:
    """Write the bounds of a text as signs before the numbers."""
    text = _replace_signs(text, _BOUNDS_IN_SIGNS)
    for number in reversed(list(_NUMBER.finditer(text))):
        if behind := _BOUND_BEHIND.match(text, number.end()):
            sign = "≤" if behind["most"] or behind["less"] else "≥"
            before = text[: number.start()]
            if re.search(r"\d\s*(?:[-\u2013~至到]|to)\s*$", before[-8:]):  # the end of a range, whose words stay
                continue
            # "±0.1 mm以内" has a bound already.
            before += "" if _BOUND.search(before[-4:]) else sign
            text = before + text[number.start() : number.end()] + behind[1] + text[behind.end() :]
    return _replace_signs(text, _BOUNDS_IN_WORDS)


def _has_bound(text: str) -> bool:
    return any(quantity.bound for quantity in quantities(text))


def _apply_common_unit(found: list[Quantity]) -> list[Quantity]:
    """In "10 to 20 mm", apply the unit to both numbers."""
    units = {quantity.unit for quantity in found} - {None}
    if len(found) < 2 or len(units) != 1 or found[-1].unit is None:
        return found
    return [quantity._replace(unit=found[-1].unit) for quantity in found]


def _is_same(expected: Quantity, predicted: Quantity, relative_tolerance: float) -> bool:
    if expected.bound != predicted.bound:
        return False
    if expected.unit is None:
        return _is_close(expected.number, predicted.number, relative_tolerance)
    if predicted.unit is None or expected.unit.bases != predicted.unit.bases:
        return False
    return _is_close(expected.in_base_units, predicted.in_base_units, relative_tolerance)


def _is_close(expected: float, predicted: float, relative_tolerance: float) -> bool:
    # Unit conversion rounds in the sixteenth digit.
    deviation = abs(expected - predicted)
    return math.isclose(expected, predicted, rel_tol=1e-9) or deviation <= relative_tolerance * abs(expected)


def _quantity(text: str, match: re.Match[str]) -> Quantity:
    bound, unit = _BOUND.search(text, max(0, match.start() - 4), match.start()), _unit_at(text, match.end())
    counted = _COUNTED.match(text, match.end()) if unit is None else None
    word = "" if counted is None else counted[1].casefold()
    word = "" if word in _NOT_COUNTED else word.removesuffix("s")
    return Quantity(_parse_value(match), unit, "" if bound is None else bound[1], word)


def _replace_signs(text: str, signs: Mapping[str, str]) -> str:
    for written, sign in signs.items():
        text = re.sub(written, sign, text, flags=re.IGNORECASE)
    return text


def _plain(text: str) -> str:
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


def _unit_at(text: str, start: int) -> Unit | None:
    """Return the longest unit at a position."""
    match = _UNIT.match(text, start, start + _LONGEST_UNIT)
    if match is None:
        return None
    candidate = match[1]
    for end in range(len(candidate), 0, -1):
        # A unit ends at the end of a word; Chinese has no spaces.
        if not _IN_A_WORD.match(candidate, end - 1) and (unit := parse_unit(normal_form(candidate[:end]))) is not None:
            return unit
    return None
