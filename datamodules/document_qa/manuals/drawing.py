"""Draws the parts of a chapter as coloured symbols with numbers. A drawing has no text layer."""

import math
from typing import TYPE_CHECKING

import numpy as np

from datamodules.document_qa.manuals.devices import Chapter, Part
from datamodules.document_qa.manuals.settings import ManualSettings
from engine.determinism.scalar_draws import between

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

RGB = {
    "red": (215, 40, 40),
    "green": (35, 160, 60),
    "blue": (45, 80, 220),
    "yellow": (240, 210, 40),
    "purple": (150, 60, 200),
    "orange": (245, 140, 30),
    "black": (40, 40, 40),
    "cyan": (50, 200, 215),
    "brown": (130, 80, 40),
}

_SAMPLES = 3  # supersampling factor, for smooth edges
_INK = (20, 20, 20)
_PAPER = (255, 255, 255)
_RADIUS = (0.40, 0.46)  # range of a part's radius with its number inside, in cell edges
_RADIUS_BESIDE = (0.24, 0.28)  # range of a part's radius with its number beside it
_NUMBER = 0.42  # height of a number, in cell edges
_NUMBER_BESIDE = 0.26


def draw_parts(chapter: Chapter, settings: ManualSettings, random: np.random.Generator) -> "Image":
    """Draw a chapter; sizes and positions within the cells are random."""
    from PIL import Image, ImageDraw

    whole = settings.figure_size * _SAMPLES
    image = Image.new("RGB", (whole, whole), _PAPER)
    pencil = ImageDraw.Draw(image)
    for part in chapter.parts:
        _draw_part(pencil, part, whole / settings.grid, settings, random)
    return image.reduce(_SAMPLES)


def _draw_part(
    pencil: "ImageDraw", part: Part, cell: float, settings: ManualSettings, random: np.random.Generator
) -> None:
    inside = settings.callouts == "inside"
    radius = cell * between(random, *(_RADIUS if inside else _RADIUS_BESIDE))
    room = cell / 2 - radius
    left, top = cell * (part.cell % settings.grid), cell * (part.cell // settings.grid)
    if inside:
        x, y = (start + cell / 2 + between(random, -room, room) for start in (left, top))
        _draw_symbol(pencil, part.shape, x, y, radius, RGB[part.colour])
        _write(pencil, str(part.number), x, y, cell * _NUMBER)
        return
    # Symbol and number are in opposite corners of the cell, so a reader has to follow the leader line.
    side, above = (1 if random.random() < 0.5 else -1 for _ in range(2))
    x, y = (start + cell / 2 + sign * (room - 0.02 * cell) for start, sign in ((left, side), (top, above)))
    height = cell * _NUMBER_BESIDE
    far = 0.5 * cell - 0.7 * height
    at_x, at_y = left + cell / 2 - side * far, top + cell / 2 - above * far
    pencil.line((at_x, at_y, x, y), fill=_INK, width=max(1, round(cell / 40)))
    _draw_symbol(pencil, part.shape, x, y, radius, RGB[part.colour])
    pencil.ellipse((at_x - 0.6 * height, at_y - 0.6 * height, at_x + 0.6 * height, at_y + 0.6 * height), fill=_PAPER)
    _write(pencil, str(part.number), at_x, at_y, height, boxed=False)


def _write(pencil: "ImageDraw", text: str, x: float, y: float, height: float, boxed: bool = True) -> None:
    """Draw a number, centered at a point; on a white plate, for the same contrast on all colours."""
    from PIL import ImageFont

    font = ImageFont.load_default(height * 1.25)  # digits are about 0.75 times as high as the font size
    if boxed:
        wide = height * (0.42 + 0.26 * (len(text) - 1))
        pencil.rectangle((x - wide, y - 0.58 * height, x + wide, y + 0.58 * height), fill=_PAPER)
    pencil.text((x, y), text, fill=_INK, font=font, anchor="mm", stroke_width=height / 24, stroke_fill=_INK)


def _draw_symbol(
    pencil: "ImageDraw", shape: str, x: float, y: float, radius: float, colour: tuple[int, int, int]
) -> None:
    box = (x - radius, y - radius, x + radius, y + radius)
    thick = max(1, round(0.36 * radius))
    if shape == "circle":
        pencil.ellipse(box, fill=colour)
    elif shape == "ring":
        pencil.ellipse(box, outline=colour, width=thick)
    elif shape == "square":
        half = 0.88 * radius  # about the same area as the circle
        pencil.rectangle((x - half, y - half, x + half, y + half), fill=colour)
    elif shape == "bar":
        pencil.rectangle((x - radius, y - 0.5 * radius, x + radius, y + 0.5 * radius), fill=colour)
    elif shape == "triangle":
        pencil.polygon([(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)], fill=colour)
    elif shape == "diamond":
        pencil.polygon([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], fill=colour)
    elif shape == "cross":
        pencil.rectangle((x - radius, y - thick, x + radius, y + thick), fill=colour)
        pencil.rectangle((x - thick, y - radius, x + thick, y + radius), fill=colour)
    elif shape == "hexagon":
        pencil.polygon(_points_around(x, y, [radius] * 6), fill=colour)
    elif shape == "star":
        pencil.polygon(_points_around(x, y, [radius, 0.55 * radius] * 5), fill=colour)
    else:
        raise ValueError(f"unknown shape {shape!r}")


def _points_around(x: float, y: float, radii: list[float]) -> list[tuple[float, float]]:
    angles = (2 * math.pi * index / len(radii) for index in range(len(radii)))
    return [(x + r * math.sin(angle), y - r * math.cos(angle)) for r, angle in zip(radii, angles, strict=True)]
