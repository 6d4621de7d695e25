"""Renders sample previews for TensorBoard and experiment trackers: a Markdown table and a grid of the pictures."""

import io
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from engine.telemetry.image_grid import encode_png_grid
from engine.telemetry.sample_previews import SamplePreview

_MARKDOWN = {ord(character): f"&#{ord(character)};" for character in "\\`*_[]()!|~:"}
"""Characters with a meaning in Markdown or in a link, as HTML entities."""

_GRADES = {True: "right", False: "WRONG", None: "not graded"}


def picture_grid(previews: Sequence[SamplePreview]) -> NDArray[np.uint8] | None:
    """Return the pictures in a grid, [height, width, 3], in the order of the table; None if there are none."""
    from PIL import Image

    images = [Image.open(io.BytesIO(preview.picture)) for preview in previews if preview.picture]
    if not images:
        return None
    return np.asarray(Image.open(io.BytesIO(encode_png_grid(*images))).convert("RGB"))


def markdown_table(previews: Sequence[SamplePreview]) -> str:
    """Return a Markdown table of the texts, with the number of each picture in the grid."""
    has_picture = any(preview.picture for preview in previews)
    has_blind = any(preview.blind is not None for preview in previews)
    headings = [
        *["picture"] * has_picture, "sample", "question", "right answer", "answer", *["blind answer"] * has_blind, "",
    ]  # fmt: skip
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    number = 0
    for preview in previews:
        # The grid holds only the previews with a picture, so their numbers skip all others.
        number += bool(preview.picture)
        cells = [
            *[str(number) if preview.picture else "none"] * has_picture,
            preview.name, preview.question, preview.expected, preview.answer,
            *[preview.blind or ""] * has_blind,
            _GRADES[preview.right],
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    # A model's answer must not become markup: Markdown's ![](http://...) would load a remote image.
    return escape(_printable(text)).translate(_MARKDOWN).replace("\n", "<br>") or "(nothing)"


def _printable(text: str) -> str:
    """Replace lone surrogates and control characters, which cannot be displayed."""
    valid = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(character if character == "\n" or character.isprintable() else " " for character in valid)
