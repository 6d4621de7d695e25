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


class Verdict(NamedTuple):
    """Of the questions of a source, in one ablation."""

    expected: Expected
    right: bool
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
        stays = low <= 0 <= high
        return Verdict(expected, stays, "stays" if stays else _change(after.value - before.value))
    if not _above_chance(whole, source):
        return Verdict(expected, False, "never above chance")
    if _above_chance(ablated, source):
        return Verdict(expected, False, "stays above chance")
    return Verdict(expected, True, "falls to chance")


def chance(result: Ablated, source: str) -> float:
    """What a source's questions can be answered without their document: by dice, or by the model, whichever is more."""
    blind = result.question_only.get(source)
    return max(result.random.get(source, 0.0), 0.0 if blind is None else blind.value)


def _change(change: float) -> str:
    return f"{'rises' if change > 0 else 'falls'} by {100 * abs(change):.1f} points"


def _above_chance(result: Ablated, source: str) -> bool:
    """Whether the interval of a source's accuracy is above what dice reach, and above the model without a document."""
    figure, blind = result.accuracy[source], result.question_only.get(source)
    assert figure.low is not None
    return figure.low > result.random.get(source, 0.0) and (blind is None or _more(blind, figure))


def _more(first: Figure, second: Figure) -> bool:
    return difference(first, second)[0] > 0
