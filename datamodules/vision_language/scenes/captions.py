"""Scenes in words, and words as things in places."""

import re
from collections import Counter

from datamodules.vision_language.scenes.scenes import COLOURS, SHAPES, Scene, Thing, places

_PART = re.compile(rf"({'|'.join(COLOURS)}) ({'|'.join(SHAPES)}) ([a-z ]+)")

Located = tuple[Thing, str]
"""A thing and the name of its place."""


def caption(scene: Scene) -> str:
    """All things in reading order: "red circle top left, blue square bottom right"."""
    named = zip(scene.cells, places(scene.grid), strict=True)
    return ", ".join(f"{thing} {place}" for thing, place in named if thing is not None)


def located(text: str) -> Counter[Located]:
    """What a caption says lies where; of what cannot be read, nothing."""
    found = (_PART.fullmatch(part.strip()) for part in text.split(","))
    return Counter((Thing(part[1], part[2]), part[3]) for part in found if part)


def object_f1(text: str, right: str) -> float:
    """The harmonic mean of precision and recall of the things with their places, in [0, 1]."""
    said, true = located(text), located(right)
    named = sum(said.values()) + sum(true.values())
    return 2 * sum((said & true).values()) / named if named else 0.0
