"""Grades answers of each form: an option, a number, or a text.

An answer to a question with options is one of the options, chosen by likelihood. The reference of an open question is a
number with or without a unit (`21.5 °C`), or a text. A number is right within a relative tolerance of the reference,
with the unit of the reference, if any; a reference of 0 takes the tolerance as absolute. A text is right
if it is the same but for case, spaces and a full stop at the end.
"""

import re
import unicodedata
from enum import Enum
from typing import NamedTuple

from datamodules.temporal.series.question import SeriesQuestion

Outcome = tuple[float, float]
"""(points reached, points possible)"""

_LONGEST = 2_000  # characters of an answer that are read, for models that do not stop
_DIGITS = r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d{1,40})?(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?"
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = r"\s,;.!?:*\"'()\[\]{}<>|\u3001\u3002\u3008-\u3011\u2018-\u201d"  # they end a unit
_UNIT = rf"[{_CJK}]{{1,8}}|(?:[^\W\d_{_CJK}]|[%°$€£‰])[^{_MARKS}{_CJK}]{{0,15}}"
_NUMBER = re.compile(rf"(?=[+-]?\.?\d)({_DIGITS}) ?({_UNIT})?")
_DASH = re.compile(r"(?<!\d)[\u2010-\u2015\u2212](?=\.?\d)")  # as a minus sign, and not between two numbers
_ABOUT = re.compile("(?:左右|上下)$")  # "about", behind the unit
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")


class AnswerForm(str, Enum):
    """Form of an answer, which determines its metric."""

    CHOICE = "choice"
    NUMBER = "number"
    TEXT = "text"


METRICS = {AnswerForm.CHOICE: "accuracy", AnswerForm.NUMBER: "number_within_tolerance", AnswerForm.TEXT: "text_exact"}
"""Metric of each form, beside `right`, which counts all."""

RIGHT = "right"


class SeriesQuantity(NamedTuple):
    """A number with its unit, which is empty if there is none."""

    value: float
    unit: str


def read_quantity(text: str, whole: bool) -> SeriesQuantity | None:
    """Return the first number of a text with the unit after it, or None; `whole`: only if the text has nothing else.

    Full-width characters and signs such as U+2103 (a degree sign with C) are read as their plain forms.
    """
    text = _DASH.sub("-", unicodedata.normalize("NFKC", text[:_LONGEST])).strip()
    match = _NUMBER.fullmatch(text.removesuffix(".")) if whole else _NUMBER.search(text)
    if match is None:
        return None
    return SeriesQuantity(float(match[1].replace(",", "")), _ABOUT.sub("", match[2] or ""))


def same_unit(unit: str, other: str) -> bool:
    """Return whether two units are the same. Case matters where it tells units apart: mW and MW, Mb and MB, s and S."""
    if unit == other or unit.casefold() != other.casefold():
        return unit == other
    if len(unit) == 1:
        return unit in "vVwWlLjJ"
    bits = [re.findall("[bB](?![A-Za-z])", each) for each in (unit, other)]
    return bits[0] == bits[1] and not (unit[0] != other[0] and unit[0] in "mM")


def form_of(question: SeriesQuestion) -> AnswerForm:
    """Return the form of the answer to a question."""
    if question.options:
        return AnswerForm.CHOICE
    return AnswerForm.TEXT if read_quantity(question.answer or "", whole=True) is None else AnswerForm.NUMBER


def chosen_option(answer: str, options: tuple[str, ...]) -> str | None:
    """Return the option that an answer names, by its text or by a letter from A on, or None."""
    if answer.strip() in options:
        return answer.strip()
    letter = _LETTER.fullmatch(answer.strip())
    # Options that are single letters are compared as texts first, above.
    index = ord(letter[1].upper()) - ord("A") if letter else len(options)
    return options[index] if index < len(options) else None


def is_right(question: SeriesQuestion, answer: str, tolerance: float) -> bool:
    """Return whether an answer is right; the reference is known.

    Args:
        question: the question with its reference.
        answer: text of the answer; to a question with options, one of them.
        tolerance: largest relative error of a number.
    """
    reference = question.answer or ""
    form = form_of(question)
    if form == AnswerForm.NUMBER:
        true, found = read_quantity(reference, whole=True), read_quantity(answer, whole=False)
        assert true is not None, "see form_of"
        # The word after a number is not a unit in "21.5 on average", so an unexpected word is ignored.
        if found is None or (true.unit and not same_unit(found.unit, true.unit)):
            return False
        # A margin of a few rounding errors, so that an error of exactly the tolerance is within it.
        return abs(found.value - true.value) <= tolerance * (abs(true.value) or 1.0) * (1 + 1e-9)
    return answer == reference if form == AnswerForm.CHOICE else _normalize(answer) == _normalize(reference)


def grade(question: SeriesQuestion, answer: str, tolerance: float) -> dict[str, Outcome]:
    """Return {outcome: (points reached, points possible)} of an answer, see `points_of`."""
    points = float(is_right(question, answer, tolerance)), 1.0
    return points_of(question, points)


def points_of(question: SeriesQuestion, points: Outcome) -> dict[str, Outcome]:
    """Return points under the names of the metrics that count the question."""
    metrics = {RIGHT: points, METRICS[form_of(question)]: points}
    return metrics | ({f"{question.kind}/{RIGHT}": points} if question.kind else {})


def _normalize(text: str) -> str:
    return " ".join(text[:_LONGEST].split()).casefold().removesuffix(".")
