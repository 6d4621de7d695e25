"""Renders scenes with random background, light, sizes and positions."""

from typing import TYPE_CHECKING

import numpy as np

from datamodules.vision_language.scenes.scene import Scene
from engine.determinism.scalar_draws import between

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

RGB = {
    "red": (225, 45, 45),
    "green": (45, 175, 65),
    "blue": (50, 85, 230),
    "yellow": (240, 215, 45),
    "purple": (165, 60, 205),
    "cyan": (45, 200, 215),
}
"""Colors at full light."""

_SAMPLES = 3  # supersampling factor, for smooth edges
_LIGHT = (0.75, 1.0)  # range of the light on an object
_GREY = (20, 110)  # range of the background's gray
_TINT = 8  # maximum difference of a background channel from gray
_RADIUS = (0.34, 0.44)  # range of an object's radius, in edges of its cell


def draw_scene(scene: Scene, size: int, random: np.random.Generator) -> "Image":
    """Render a scene; background, light, sizes and positions within the cells are random.

    Args:
        scene: the scene; an object lies completely within its cell.
        size: edge of the image, in pixels.
        random: source of the variation between images of a scene.
    """
    from PIL import Image, ImageDraw

    canvas_size = size * _SAMPLES
    cell = canvas_size / scene.grid
    image = Image.new("RGB", (canvas_size, canvas_size), _background(random))
    pencil = ImageDraw.Draw(image)
    for index, thing in enumerate(scene.cells):
        if thing is not None:
            radius = cell * between(random, *_RADIUS)
            room = cell / 2 - radius
            x = cell * (index % scene.grid + 0.5) + between(random, -room, room)
            y = cell * (index // scene.grid + 0.5) + between(random, -room, room)
            light = between(random, *_LIGHT)
            red, green, blue = (round(light * channel) for channel in RGB[thing.colour])
            _draw_shape(pencil, thing.shape, x, y, radius, (red, green, blue))
    return image.reduce(_SAMPLES)


def _draw_shape(
    pencil: "ImageDraw", shape: str, x: float, y: float, radius: float, colour: tuple[int, int, int]
) -> None:
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        pencil.ellipse(box, fill=colour)
    elif shape == "ring":
        pencil.ellipse(box, outline=colour, width=max(1, round(0.4 * radius)))
    elif shape == "square":
        half = 0.88 * radius  # about the circle's area
        pencil.rectangle((x - half, y - half, x + half, y + half), fill=colour)
    elif shape == "triangle":
        pencil.polygon([(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)], fill=colour)
    elif shape == "diamond":
        pencil.polygon([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], fill=colour)
    else:
        raise ValueError(f"found the shape {shape}, which cannot be drawn")


def _background(random: np.random.Generator) -> tuple[int, int, int]:
    grey = between(random, *_GREY)
    red, green, blue = (round(grey + between(random, -_TINT, _TINT)) for _ in range(3))
    return red, green, blue
