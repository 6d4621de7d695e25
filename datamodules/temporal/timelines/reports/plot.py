"""Plots a timeline: a panel per channel, with the queried, true and predicted points."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.timelines.reports.sample_view import Mark, MarkKind, SampleView

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

WIDTH, PANEL, LEFT, GAP = 640, 96, 8, 22  # pixels: image width, panel height, margins, height of a heading
DOT = 4  # radius of a point in pixels
PAPER, GRID, INK, FAINT = (255, 255, 255), (226, 230, 235), (28, 33, 38), (128, 137, 148)
COLORS = {MarkKind.ASKED: (38, 96, 200), MarkKind.TRUE: (10, 122, 75), MarkKind.PREDICTED: (200, 60, 30)}


def draw_timeline(view: SampleView) -> "Image":
    """Draw the curves from 0 to the capacity, with gaps for missing measurements; channels not queried are faint."""
    from PIL import Image, ImageDraw

    sheet = Image.new("RGB", (WIDTH, len(view.channels) * (GAP + PANEL) + GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    for number in range(len(view.channels)):
        _Panel(pen, view, number).draw()
    seconds = (len(view.values) - 1) * view.step_ms / 1000
    bottom = sheet.height - GAP + 4
    pen.text((LEFT, bottom), "0 s", FAINT)
    pen.text((WIDTH - LEFT, bottom), f"{seconds:g} s", FAINT, anchor="ra")
    _legend(pen, view, bottom)
    return sheet


class _Panel:
    """Panel of one channel."""

    def __init__(self, pen: "ImageDraw", view: SampleView, number: int) -> None:
        self.pen, self.view, self.number = pen, view, number
        self.channel, self.capacity = view.channels[number], float(view.capacities[number])
        self.top = number * (GAP + PANEL) + GAP
        self.asked = self.channel == view.asked_channel

    def draw(self) -> None:
        self.pen.rectangle((LEFT, self.top, WIDTH - LEFT, self.top + PANEL), outline=GRID)
        heading = f"{self.channel}: {self.capacity:g}{self.view.units[self.number].rstrip()}"
        self.pen.text((LEFT, self.top - 15), heading, INK if self.asked else FAINT)
        self._curve()
        for mark in self.view.marks:
            if mark.channel == self.channel:
                self._mark(mark)

    def _x(self, step: float) -> float:
        return LEFT + (WIDTH - 2 * LEFT) * step / max(1, len(self.view.values) - 1)

    def _y(self, share: float) -> float:
        return self.top + PANEL * (1 - min(max(share, 0.0), 1.0))

    def _curve(self) -> None:
        values, present = self.view.values[:, self.number], self.view.present[:, self.number]
        for first, last in _stretches(present):
            points = [(self._x(step), self._y(float(values[step]))) for step in range(first, last)]
            color = INK if self.asked else FAINT
            # Pillow draws no line of a single point.
            if len(points) == 1:
                self.pen.point(points, color)
            self.pen.line(points, color, 2 if self.asked else 1)

    def _mark(self, mark: Mark) -> None:
        color = COLORS[mark.kind]
        x = None if mark.time_s is None else self._x(mark.time_s * 1000 / self.view.step_ms)
        y = None if mark.value is None else self._y(mark.value / self.capacity)
        if x is not None and not LEFT <= x <= WIDTH - LEFT:  # an answer may name any time
            return
        if x is not None and y is not None:
            self.pen.ellipse((x - DOT, y - DOT, x + DOT, y + DOT), outline=color, width=2)
        elif x is not None:
            self.pen.line((x, self.top, x, self.top + PANEL), color)
        elif y is not None:
            self.pen.line((LEFT, y, WIDTH - LEFT, y), color)


def _stretches(present: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return [(first, one past the last)] runs of measured steps."""
    # The changes from missing to present and back alternate, because both ends are padded with missing.
    edges = np.flatnonzero(np.diff(present.astype(np.int8), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _legend(pen: "ImageDraw", view: SampleView, top: int) -> None:
    left = WIDTH // 3
    for kind in MarkKind:
        if any(mark.kind == kind for mark in view.marks):
            pen.text((left, top), kind.value, COLORS[kind])
            left += 80
