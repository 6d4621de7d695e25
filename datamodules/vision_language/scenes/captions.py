"""Writes captions of scenes, and parses objects with places from captions."""

import re
from collections import Counter

from datamodules.vision_language.scenes.scene import COLOURS, SHAPES, Scene, SceneObject, cell_names

_PART = re.compile(rf"({'|'.join(COLOURS)}) ({'|'.join(SHAPES)}) ([a-z ]+)")

Located = tuple[SceneObject, str]
"""An object and the name of its place."""


def caption(scene: Scene) -> str:
    """Return the caption of a scene: all objects in reading order, "red circle top left, blue square bottom right"."""
    named_cells = zip(scene.cells, cell_names(scene.grid), strict=True)
    return ", ".join(f"{thing} {cell_name}" for thing, cell_name in named_cells if thing is not None)


def parse_caption(text: str) -> Counter[Located]:
    """Return the objects of a caption with their places; parts that cannot be parsed are ignored."""
    parts = (_PART.fullmatch(part.strip()) for part in text.split(","))
    return Counter((SceneObject(part[1], part[2]), part[3]) for part in parts if part)


def object_f1(text: str, right: str) -> float:
    """Return the harmonic mean of precision and recall of the objects with their places, in [0, 1]."""
    found, expected = parse_caption(text), parse_caption(right)
    total = sum(found.values()) + sum(expected.values())
    return 2 * sum((found & expected).values()) / total if total else 0.0
