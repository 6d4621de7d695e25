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

from datamodules.temporal.series.series_question import SeriesQuestion

Outcome = tuple[float, float]
"""(points reached, points possible)"""

_LONGEST = 2_000  # characters of an answer that are read, for models that do not stop
_DIGITS = r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d{1,40})?(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?"
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_NUMBER = re.compile(rf"(?=[+-]?\.?\d)({_DIGITS})")
_UNIT = re.compile(r" ?([^\W\d_][^\s,;.!?]{0,15}|[%°$€£µΩ‰][^\s,;.!?]{0,15})?")
_DASH = re.compile(r"(?<!\d)[\u2010-\u2013\u2212](?=\.?\d)")  # as a minus sign, and not between two numbers
_LONGER = re.compile(rf"[^\W{_CJK}]|[/·^%°]|\*(?!\*)|-\w|\([A-Za-z]{{1,4}}\)")
"""What makes a unit another one: N*m is not N, and dB(A) not dB."""
_LONGER_CHINESE = re.compile(rf"(?!的|左右|上下|以[上下内]|和|与|或|至|到)[{_CJK}]|[A-Za-z0-9/·^]")
"""The same behind a Chinese unit: 千瓦时 is not 千瓦."""
_WIDE = re.compile("[\uff00-\uffef\u2103\u2109\N{MICRO SIGN}\N{OHM SIGN}]")
"""Characters with a plain form; others, such as a raised 2, would become part of a number."""

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


def read_quantity(text: str) -> SeriesQuantity | None:
    """Return the quantity that a text is; None if it has something else.

    Full-width characters and signs such as U+2103 (a degree sign with C) are read as their plain forms.
    """
    text = _plain(text).removesuffix(".")
    number = _NUMBER.match(text)
    unit = _UNIT.fullmatch(text, number.end()) if number else None
    return SeriesQuantity(_value(number), unit[1] or "") if number and unit else None


def find_number(text: str, unit: str) -> float | None:
    """Return the first number of a text; None if there is none, or if another unit than `unit` follows it.

    A word after the number that belongs to no unit is ignored if `unit` is empty: "21.5 on average".
    """
    text = _plain(text)
    number = _NUMBER.search(text)
    if number is None or not (not unit or _follows(text[number.end() :].removeprefix(" "), unit)):
        return None
    return _value(number)


def _follows(text: str, unit: str) -> bool:
    """Return whether a text begins with a unit, and not with a longer one. In Chinese no space follows a unit."""
    longer = _LONGER_CHINESE if re.search(f"[{_CJK}]$", unit) else _LONGER
    return same_unit(text[: len(unit)], unit) and not longer.match(text, len(unit))


def _plain(text: str) -> str:
    text = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text[:_LONGEST])
    return _DASH.sub("-", text).strip()


def _value(number: re.Match[str]) -> float:
    return float(number[1].replace(",", ""))


def same_unit(unit: str, other: str) -> bool:
    """Return whether two units are the same. Case matters if it distinguishes units: mW and MW, Mb and MB, s and S."""
    if unit == other or unit.casefold() != other.casefold():
        return unit == other
    if len(unit) == 1:
        return unit in "vVwWlLjJ"
    # Bits and bytes, alone or behind a prefix; "dB" is neither.
    bits = [re.findall("(?:^|(?<=[kKMGTPi]))[bB](?![A-Za-z])", each) for each in (unit, other)]
    is_prefix = len(unit) <= 3 or unit[1].isupper()  # milli or mega; "minutes" begins with neither
    return bits[0] == bits[1] and not (is_prefix and unit[0] != other[0] and unit[0] in "mM")


def form_of(question: SeriesQuestion) -> AnswerForm:
    """Return the form of the answer to a question."""
    if question.options:
        return AnswerForm.CHOICE
    return AnswerForm.TEXT if read_quantity(question.answer or "") is None else AnswerForm.NUMBER


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
        true = read_quantity(reference)
        assert true is not None, "see form_of"
        found = find_number(answer, true.unit)
        if found is None:
            return False
        # A margin of a few rounding errors, so that an error of exactly the tolerance is within it.
        return abs(found - true.value) <= tolerance * (abs(true.value) or 1.0) * (1 + 1e-9)
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
