"""Writes the report on the answers of a test: each question with its series, reference, answer and blind answer."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.reports.html_report import ANSWERS, Grade, MetricRow, outcome_title, write_report
from datamodules.multimodal.reports.word_diff import word_differences
from datamodules.temporal.series.grading import METRICS, RIGHT, form_of
from datamodules.temporal.series.series_question import InputSeries, SeriesQuestion
from datamodules.temporal.series_marker import PLACEHOLDER

PAGES = Path(__file__).parents[1] / "pages"

_POINTS = 600
"""Largest number of buckets of a drawn series; each keeps its smallest and its largest value."""

_DIGITS = 5  # significant digits of a drawn value


def answer_view(
    sample: int, question: SeriesQuestion, text: str, blind: str, graded: Grade, blind_graded: Grade
) -> dict[str, Any]:
    """Return the record of a question with the answers of the model and of the blind model, as the page reads it."""
    form = form_of(question)
    truth, answer = word_differences(question.answer or "", text)
    return {
        "sample": sample,
        "task": question.kind or form.value,
        "class": question.key or None,
        "question": shown_question(question),
        "options": list(question.options),
        "truth": question.answer or "",
        "truth_parts": truth,
        "answer": text,
        "answer_parts": answer,
        "blind": blind,
        "outcomes": {outcome_title(METRICS[form]): list(graded[METRICS[form]])},
        "errors": _errors(graded),
        "blind_errors": _errors(blind_graded),
        "curves": [curve(series) for series in question.series],
    }


def shown_question(question: SeriesQuestion) -> str:
    """Return the text of a question with the names of the series in their places."""
    pieces = question.question.strip().split(PLACEHOLDER)
    names = [series.name for series in question.series] if len(pieces) > 1 else []
    return "".join(piece + name for piece, name in zip(pieces, [*names, ""], strict=True))


def write_test_report(
    folder: Path, views: Sequence[dict[str, Any]], metrics: Iterable[MetricRow], about: Mapping[str, str]
) -> Path:
    """Write `prediction_report.html` and `.json` to a folder and return the path of the HTML file.

    Raises:
        OSError: the disk rejected a file; an existing report is unchanged.
    """
    content = {"about": dict(about), "metrics": [row._asdict() for row in metrics], "records": list(views)}
    scripts = [PAGES / "series.js", ANSWERS, PAGES / "series_report.js"]
    styles = [PAGES / "curves.css", PAGES / "series.css"]
    return write_report(folder, "prediction_report", "Prediction report", content, scripts, styles)


def curve(series: InputSeries) -> dict[str, Any]:
    """Return a series as the page draws it: points of at most 2 * _POINTS steps, null for a gap."""
    steps, values = downsample(series.values)
    measured = series.values[~np.isnan(series.values)]
    low, high = (float(measured.min()), float(measured.max())) if len(measured) else (0.0, 1.0)
    return {
        "name": series.name,
        "unit": series.unit,
        "length": len(series.values),
        "step": series.step,
        "low": _round_to_digits(low),
        "high": _round_to_digits(high),
        "steps": steps.tolist(),
        "values": [None if np.isnan(value) else _round_to_digits(float(value)) for value in values],
    }


def downsample(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the steps [n] and values [n] to draw of a series.

    A short series is drawn whole; a long one is cut into buckets, of which the extremes are drawn.

    Args:
        values: [steps], NaN where missing.
    """
    if len(values) <= 2 * _POINTS:
        return np.arange(len(values)), values
    selected: set[int] = set()
    for bucket in np.array_split(np.arange(len(values)), _POINTS):
        inside = values[bucket]
        missing = np.isnan(inside)
        # A gap in a bucket is kept as a point without a value, so that the drawn line is interrupted.
        if missing.any():
            selected.add(int(bucket[missing.argmax()]))
        if not missing.all():
            selected |= {int(bucket[np.nanargmin(inside)]), int(bucket[np.nanargmax(inside)])}
    steps = np.array(sorted(selected), np.int64)
    return steps, values[steps]


def _round_to_digits(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _errors(graded: Grade) -> list[str]:
    reached, possible = graded[RIGHT]
    return [] if reached == possible else ["answer"]
