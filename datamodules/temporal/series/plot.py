"""Draws series for the previews of trackers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from datamodules.temporal.series.normalization import normalize
from datamodules.temporal.series.series_question import InputSeries

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

_WIDTH, _PANEL, _LEFT, _GAP = 640, 96, 8, 22  # pixels: image width, panel height, margins, height of a heading
_MAX_SERIES = 6  # series that are drawn
_PAPER, _GRID, _INK, _CURVE = (255, 255, 255), (226, 230, 235), (28, 33, 38), (38, 96, 200)


def draw_series(series: Sequence[InputSeries]) -> "Image":
    """Draw the first series below each other, each from its smallest to its largest value, with gaps."""
    from PIL import Image, ImageDraw

    drawn = series[:_MAX_SERIES]
    sheet = Image.new("RGB", (_WIDTH, len(drawn) * (_GAP + _PANEL) + _LEFT), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, panel in enumerate(drawn):
        top = number * (_GAP + _PANEL) + _GAP
        normalized = normalize(panel.values)
        pen.rectangle((_LEFT, top, _WIDTH - _LEFT, top + _PANEL), outline=_GRID)
        pen.text(
            (_LEFT, top - 15),
            # Pillow's default font may lack other characters.
            f"{panel.name} {panel.unit}: {len(panel.values)} steps".encode("ascii", "replace").decode(),
            _INK,
        )
        across = np.linspace(_LEFT, _WIDTH - _LEFT, max(2, len(panel.values)))
        points: list[tuple[float, float]] = []
        for x, share, present in zip(across, normalized.shares, normalized.present, strict=False):
            if present:
                points.append((float(x), top + _PANEL * (1 - float(share))))
                continue
            _line(pen, points)
            points = []
        _line(pen, points)
    return sheet


def _line(pen: "ImageDraw", points: list[tuple[float, float]]) -> None:
    if len(points) > 1:
        pen.line(points, _CURVE, 2)
    elif points:
        [(x, y)] = points
        pen.ellipse((x - 2, y - 2, x + 2, y + 2), _CURVE)
