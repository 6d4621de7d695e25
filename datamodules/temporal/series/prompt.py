"""Writes a question about series as the text of a user.

Before each series stands what its shares cannot show: name, unit, number of steps, length of a step, offset and scale.
"""

from datamodules.temporal.series.normalization import NormalizedSeries
from datamodules.temporal.series.series_question import InputSeries, SeriesQuestion
from datamodules.temporal.series_marker import PLACEHOLDER, SeriesPosition


def header(series: InputSeries, normalized: NormalizedSeries) -> str:
    """Return the description of a series that stands before it."""
    unit = f" in {series.unit}" if series.unit else ""
    step = "" if series.step is None else f" of {_format_number(series.step)} s"
    steps = "1 step" if len(series.values) == 1 else f"{len(series.values)} steps"
    return f"{series.name}{unit}, {steps}{step}, offset {normalized.offset}, scale {normalized.scale}:"


def user_text(
    question: SeriesQuestion, normalized: list[NormalizedSeries], position: SeriesPosition, list_options: bool
) -> str:
    """Return the question, its options and its series, each with its header before its marker.

    A question that holds PLACEHOLDER once for each series has the series in these places. Otherwise they follow the
    question, or precede it.
    """
    parts = [f"{header(*pair)} {PLACEHOLDER}" for pair in zip(question.series, normalized, strict=True)]
    text = question.question.strip()
    options = "".join(f"\n- {option}" for option in question.options) if list_options else ""
    if PLACEHOLDER in text:
        pieces = text.split(PLACEHOLDER)
        return "".join(piece + part for piece, part in zip(pieces, [*parts, ""], strict=True)) + options
    lines = [text + options, *parts] if position == "question_first" else [*parts, text + options]
    return "\n".join(lines)


def _format_number(seconds: float) -> str:
    """Return a number without a surplus fraction: 300 for 300.0, 0.1 for 0.1."""
    return f"{seconds:.0f}" if seconds == round(seconds) and seconds < 1e15 else repr(seconds)
