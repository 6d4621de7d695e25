"""Whether a model reads what it is asked about: what it should lose with a modality, and what it should keep."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from datamodules.document_qa.grading.intervals import Figure, difference
from datamodules.document_qa.question import Source
from datamodules.document_qa.reports.ablation_result import Ablated

Expected = Literal["chance", "as before"]

_EVERYTHING: tuple[Source, ...] = ("text", "table", "figure", "hop", "cross")

# Questions that lead from a figure to a table may fall without tables or not, by how they are made; those with several
# sources too. Where nothing answers a question, that stays so, but a model may be led to believe otherwise.
_EXPECTED: Mapping[str, Mapping[Source, Expected]] = {
    "figure": {"figure": "chance", "hop": "chance", "text": "as before", "table": "as before"},
    "shuffled_figure": {"figure": "chance", "hop": "chance", "text": "as before", "table": "as before"},
    "table": {"table": "chance", "text": "as before", "figure": "as before"},
    "text": {"text": "chance", "table": "as before", "figure": "as before"},
    "question_only": dict.fromkeys(_EVERYTHING, "chance"),
}


TOO_FEW = "too few questions to tell"

_TELLING = 0.1
"""Accuracies whose intervals reach farther than so to each side tell nothing by not differing."""


class Verdict(NamedTuple):
    """Of the questions of a source, in one ablation."""

    expected: Expected
    right: bool | None  # None: nobody can tell
    says: str


def verdict(whole: Ablated, ablated: Ablated, source: str) -> Verdict | None:
    """Compares a source's accuracies with 95 % intervals (Newcombe's, of differences of shares).

    None: nothing is expected of that source, or nobody asked about it.
    """
    expected = _EXPECTED.get(ablated.ablate, {}).get(source)  # type: ignore[call-overload]
    before, after = whole.accuracy.get(source), ablated.accuracy.get(source)
    if expected is None or before is None or after is None:
        return None
    if expected == "as before":
        low, high = difference(before, after)
        if not low <= 0 <= high:
            return Verdict(expected, False, _change(after.value - before.value))
        return _too_few(expected) if high - low > 2 * _TELLING else Verdict(expected, True, "stays")
    if not _above_chance(whole, source):
        return _too_few(expected) if _is_wide(before) else Verdict(expected, False, "never above chance")
    if _above_chance(ablated, source):
        return Verdict(expected, False, "stays above chance")
    if _is_wide(after):
        return _too_few(expected)
    if difference(before, after)[1] >= 0:
        return Verdict(expected, False, "does not clearly fall")
    return Verdict(expected, True, "falls to chance")


def chance(result: Ablated, source: str) -> float:
    """What a source's questions can be answered without their document, by dice, custom or model: whichever is most."""
    blind = result.question_only.get(source)
    return max(_blind_rules(result, source), 0.0 if blind is None else blind.value)


def _blind_rules(result: Ablated, source: str) -> float:
    return max(result.random.get(source, 0.0), result.majority.get(source, 0.0))


def _is_wide(figure: Figure) -> bool:
    assert figure.low is not None and figure.high is not None
    return figure.high - figure.low > 2 * _TELLING


def _too_few(expected: Expected) -> Verdict:
    return Verdict(expected, None, TOO_FEW)


def _change(change: float) -> str:
    return f"{'rises' if change > 0 else 'falls'} by {100 * abs(change):.1f} points"


def _above_chance(result: Ablated, source: str) -> bool:
    """Whether the interval of a source's accuracy is above what dice and custom reach, and above the model without a
    document, unless it is itself of that.
    """
    figure, blind = result.accuracy[source], result.question_only.get(source)
    assert figure.low is not None
    without_document = result.ablate == "question_only"
    return figure.low > _blind_rules(result, source) and (without_document or blind is None or _more(blind, figure))


def _more(first: Figure, second: Figure) -> bool:
    return difference(first, second)[0] > 0
