"""What is in a scene: things in the cells of a grid, and which scenes training never has."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np

from engine.randomness import hash_uniform

COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan")
SHAPES = ("circle", "square", "triangle", "diamond", "ring")

_ROWS = {1: ("",), 2: ("top", "bottom"), 3: ("top", "middle", "bottom")}
_COLUMNS = {1: ("middle",), 2: ("left", "right"), 3: ("left", "centre", "right")}

Option = TypeVar("Option")

_HELD_OUT = 0x5CE7E  # this hash's name beside whatever else is hashed


class Thing(NamedTuple):
    """What a cell may hold."""

    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.colour} {self.shape}"


class Scene(NamedTuple):
    """The cells of a square grid in reading order."""

    cells: tuple[Thing | None, ...]  # [grid * grid]

    @property
    def grid(self) -> int:
        return round(len(self.cells) ** 0.5)

    @property
    def things(self) -> list[Thing]:
        """In reading order."""
        return [thing for thing in self.cells if thing]


class Split(IntEnum):
    """Part of the hash, so no two splits draw from the same random numbers; and no two have a scene in common."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


@dataclass(frozen=True)
class World:
    """What scenes there are.

    Args:
        grid: cells along each edge, 1 to 3.
        colours: how many of `COLOURS`, at least 2.
        shapes: how many of `SHAPES`, at least 2.
        max_objects: things in the fullest scene; the emptiest has one.
        size: pixels of a picture's edges.
        held_out: share of the scenes (which thing lies in which cell) that training never has, in [0, 1). One half of
            them is for validation, the other for the test.
    """

    grid: int = 2
    colours: int = 4
    shapes: int = 3
    max_objects: int = 3
    size: int = 32
    held_out: float = 0.2

    def __post_init__(self) -> None:
        limits = {
            "grid": (1, len(_ROWS)),
            "colours": (2, len(COLOURS)),
            "shapes": (2, len(SHAPES)),
            "max_objects": (1, self.grid**2),
            "size": (8 * self.grid, 4096),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"world.{name}: found {getattr(self, name)}, expected {least} to {most}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"world.held_out: found {self.held_out}, expected a share above 0 and below 1")

    @property
    def palette(self) -> tuple[str, ...]:
        return COLOURS[: self.colours]

    @property
    def forms(self) -> tuple[str, ...]:
        return SHAPES[: self.shapes]

    @property
    def things(self) -> list[Thing]:
        """All that there can be in a cell."""
        return [Thing(colour, shape) for colour in self.palette for shape in self.forms]

    @property
    def cells(self) -> range:
        return range(self.grid**2)

    @property
    def places(self) -> list[str]:
        """What each cell is called."""
        return places(self.grid)

    def split_of(self, scene: Scene) -> Split:
        """The only split that has this scene. It depends on the scene alone, so stages of a training agree on it."""
        place = float(hash_uniform(_HELD_OUT, _code(scene)))
        if place >= self.held_out:
            return Split.TRAIN
        return Split.VALIDATION if place < self.held_out / 2 else Split.TEST

    def completed(self, random: np.random.Generator, required: dict[int, Thing], objects: int | None = None) -> Scene:
        """A random scene with the required things in their cells, and so many objects, or any number."""
        if objects is None:
            least = max(1, len(required))
            objects = least + int(random.random() * (self.max_objects + 1 - least))
        cells: list[Thing | None] = [required.get(cell) for cell in self.cells]
        free = [cell for cell in self.cells if cell not in required]
        for _ in range(objects - len(required)):
            cells[free.pop(int(random.random() * len(free)))] = self.thing(random)
        return Scene(tuple(cells))

    def thing(self, random: np.random.Generator, colour: str | None = None, shape: str | None = None) -> Thing:
        """A random one; of a colour or a shape, where given."""
        return Thing(colour or choice(random, self.palette), shape or choice(random, self.forms))


def places(grid: int) -> list[str]:
    """What the cells of a grid are called, in reading order."""
    return [f"{row} {column}".strip() for row in _ROWS[grid] for column in _COLUMNS[grid]]


def choice(random: np.random.Generator, options: Sequence[Option]) -> Option:
    """One of the options, each as likely."""
    return options[int(random.random() * len(options))]


def _code(scene: Scene) -> int:
    """Another number for each scene of a grid."""
    number = 0
    for thing in scene.cells:
        number *= 1 + len(COLOURS) * len(SHAPES)
        if thing is not None:
            number += 1 + COLOURS.index(thing.colour) * len(SHAPES) + SHAPES.index(thing.shape)
    return number
