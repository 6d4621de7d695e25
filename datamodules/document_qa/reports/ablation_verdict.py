"""Judges ablations: whether removing a modality reduces exactly the accuracies that depend on it."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from datamodules.document_qa.reports.ablation_result import AblationResult
from datamodules.document_qa.types.question import Source
from engine.statistics.confidence_intervals import MetricEstimate, difference

Expected = Literal["chance", "as before"]

_EVERYTHING: tuple[Source, ...] = ("text", "table", "figure", "hop", "cross")

# Not listed, as no change is expected in advance: questions that lead from a figure to a table when tables are removed,
# questions with several sources, and unanswerable questions.
_EXPECTED: Mapping[str, Mapping[str, Expected]] = {
    "figure": {"figure": "chance", "hop": "chance", "text": "as before", "table": "as before"},
    "shuffled_figure": {"figure": "chance", "hop": "chance", "text": "as before", "table": "as before"},
    "table": {"table": "chance", "text": "as before", "figure": "as before"},
    "text": {"text": "chance", "table": "as before", "figure": "as before"},
    "question_only": dict.fromkeys(_EVERYTHING, "chance"),
}


TOO_FEW = "too few questions"

_TELLING = 0.1
"""If an interval reaches farther than this to either side, an unchanged accuracy is inconclusive."""


class AblationFinding(NamedTuple):
    """The verdict on the questions of a source in an ablation."""

    expected: Expected
    right: bool | None  # None if inconclusive
    says: str


def verdict(unablated: AblationResult, ablated: AblationResult, source: str) -> AblationFinding | None:
    """Compare the accuracies of a source by 95 % intervals (Newcombe's, of differences of proportions).

    Returns None if there is no expectation for the source, or there are no questions.
    """
    expected = _EXPECTED.get(ablated.ablate, {}).get(source)
    before, after = unablated.accuracy.get(source), ablated.accuracy.get(source)
    if expected is None or before is None or after is None:
        return None
    if expected == "as before":
        low, high = difference(before, after)
        if not low <= 0 <= high:
            return AblationFinding(expected, False, _change(after.value - before.value))
        return _too_few(expected) if high - low > 2 * _TELLING else AblationFinding(expected, True, "stays")
    if not _above_chance(unablated, source):
        return _too_few(expected) if _is_wide(before) else AblationFinding(expected, False, "never above chance")
    if _above_chance(ablated, source):
        return AblationFinding(expected, False, "stays above chance")
    if _is_wide(after):
        return _too_few(expected)
    if difference(before, after)[1] >= 0:
        return AblationFinding(expected, False, "does not clearly fall")
    return AblationFinding(expected, True, "falls to chance")


def chance(result: AblationResult, source: str) -> float:
    """Return the best accuracy without documents: of random choice, the most frequent answer, or the model."""
    blind = result.question_only.get(source)
    return max(_blind_rules(result, source), 0.0 if blind is None else blind.value)


def _blind_rules(result: AblationResult, source: str) -> float:
    return max(result.random.get(source, 0.0), result.majority.get(source, 0.0))


def _is_wide(estimate: MetricEstimate) -> bool:
    assert estimate.low is not None and estimate.high is not None
    return estimate.high - estimate.low > 2 * _TELLING


def _too_few(expected: Expected) -> AblationFinding:
    return AblationFinding(expected, None, TOO_FEW)


def _change(change: float) -> str:
    return f"{'rises' if change > 0 else 'falls'} by {100 * abs(change):.1f} points"


def _above_chance(result: AblationResult, source: str) -> bool:
    """Return whether the interval of a source's accuracy is above the baselines that do not read the question.

    It must also be above the model without documents, unless it is the result of that model.
    """
    estimate, blind = result.accuracy[source], result.question_only.get(source)
    assert estimate.low is not None
    without_document = result.ablate == "question_only"
    return estimate.low > _blind_rules(result, source) and (
        without_document or blind is None or _is_higher(blind, estimate)
    )


def _is_higher(first: MetricEstimate, second: MetricEstimate) -> bool:
    return difference(first, second)[0] > 0
