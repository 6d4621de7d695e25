"""Compares the quantities of two texts, with bounds in signs or in words."""

import math
import re

from datamodules.document_qa.grading.quantities import (
    BOUND,
    BOUNDS_IN_SIGNS,
    NUMBER,
    Quantity,
    half_width,
    is_quantity,
    quantities,
    replace_signs,
)
from datamodules.multimodal.text.text_similarity import exact_match

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
    if any(
        quantity.unit is None and quantity.counted not in half_width(predicted).casefold() for quantity in references
    ):
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
    text = _bounds_in_signs(half_width(text).strip())
    return text[:1] in tuple("<>±≤≥") and is_quantity(text[1:])


def _bounds_in_signs(text: str) -> str:
    """Write the bounds of a text as signs before the numbers."""
    text = replace_signs(text, BOUNDS_IN_SIGNS)
    for number in reversed(list(NUMBER.finditer(text))):
        if behind := _BOUND_BEHIND.match(text, number.end()):
            sign = "≤" if behind["most"] or behind["less"] else "≥"
            before = text[: number.start()]
            if re.search(r"\d\s*(?:[-\u2013~至到]|to)\s*$", before[-8:]):  # the end of a range, whose words stay
                continue
            # "±0.1 mm以内" has a bound already.
            before += "" if BOUND.search(before[-4:]) else sign
            text = before + text[number.start() : number.end()] + behind[1] + text[behind.end() :]
    return replace_signs(text, _BOUNDS_IN_WORDS)


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
