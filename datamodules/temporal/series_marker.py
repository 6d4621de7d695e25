"""Inserts the marker of the series into the text of a question."""

from typing import Literal

PLACEHOLDER = "<series>"
"""Marker of the series in the text of a question."""

SeriesPosition = Literal["question_first", "series_first"]
"""Order of the text. With the question first, the series' tokens attend to it."""


def insert_series_marker(text: str, position: SeriesPosition) -> str:
    """Return the text of a question with the marker of the series before or after it."""
    parts = (text, PLACEHOLDER) if position == "question_first" else (PLACEHOLDER, text)
    return "\n".join(parts)
