"""Defines scenes, objects in the cells of a grid, and assigns scenes to splits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from datamodules.multimodal.synthetic_split import Split
from engine.determinism.stateless_rng import hash_uniform
from engine.number_check import check_number

COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan")
SHAPES = ("circle", "square", "triangle", "diamond", "ring")

_ROWS = {1: ("",), 2: ("top", "bottom"), 3: ("top", "middle", "bottom")}
_COLUMNS = {1: ("middle",), 2: ("left", "right"), 3: ("left", "centre", "right")}

Option = TypeVar("Option")

_HELD_OUT = 0x5CE7E  # hash key of the assignment to splits


class SceneObject(NamedTuple):
    """A shape of a color; its position is its cell in the scene."""

    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.colour} {self.shape}"


class Scene(NamedTuple):
    """The cells of a square grid in reading order."""

    cells: tuple[SceneObject | None, ...]  # [grid * grid]

    @property
    def grid(self) -> int:
        """Cells along each edge."""
        return round(len(self.cells) ** 0.5)

    @property
    def objects(self) -> list[SceneObject]:
        """The objects in reading order."""
        return [thing for thing in self.cells if thing]


@dataclass(frozen=True)
class World:
    """Set of possible scenes.

    Args:
        grid: cells along each edge, 1 to 3.
        colours: number of colors used from `COLOURS`, at least 2.
        shapes: number of shapes used from `SHAPES`, at least 2.
        max_objects: maximum number of objects; the minimum is one.
        size: edge of an image, in pixels.
        held_out: share of the scenes (assignments of objects to cells) that never occur in training, in (0, 1).
            Validation and test get one half each.
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
        for name, (minimum, maximum) in limits.items():
            check_number(f"world.{name}", getattr(self, name), at_least=minimum, at_most=maximum)
        check_number("world.held_out", self.held_out, above=0, below=1)

    @property
    def palette(self) -> tuple[str, ...]:
        """The colors of this world."""
        return COLOURS[: self.colours]

    @property
    def forms(self) -> tuple[str, ...]:
        """The shapes of this world."""
        return SHAPES[: self.shapes]

    @property
    def objects(self) -> list[SceneObject]:
        """All possible objects."""
        return [SceneObject(colour, shape) for colour in self.palette for shape in self.forms]

    @property
    def cells(self) -> range:
        """The numbers of the cells, in reading order."""
        return range(self.grid**2)

    @property
    def cell_names(self) -> list[str]:
        """The name of each cell."""
        return cell_names(self.grid)

    def split_of(self, scene: Scene) -> Split:
        """Return the split of a scene. It depends on the scene only, so all stages of a training agree on it."""
        share = float(hash_uniform(_HELD_OUT, _code(scene)))
        if share >= self.held_out:
            return Split.TRAIN
        return Split.VALIDATION if share < self.held_out / 2 else Split.TEST

    def random_scene(
        self, random: np.random.Generator, required: dict[int, SceneObject], objects: int | None = None
    ) -> Scene:
        """Return a random scene with the required objects in their cells, and this number of objects, or any number."""
        if objects is None:
            minimum = max(1, len(required))
            objects = minimum + int(random.random() * (self.max_objects + 1 - minimum))
        cells: list[SceneObject | None] = [required.get(cell) for cell in self.cells]
        free = [cell for cell in self.cells if cell not in required]
        for _ in range(objects - len(required)):
            cells[free.pop(int(random.random() * len(free)))] = self.draw_object(random)
        return Scene(tuple(cells))

    def draw_object(
        self, random: np.random.Generator, colour: str | None = None, shape: str | None = None
    ) -> SceneObject:
        """Return a random object, of a given color or shape."""
        return SceneObject(colour or choice(random, self.palette), shape or choice(random, self.forms))


def cell_names(grid: int) -> list[str]:
    """Return the names of the cells of a grid, in reading order."""
    return [f"{row} {column}".strip() for row in _ROWS[grid] for column in _COLUMNS[grid]]


def choice(random: np.random.Generator, options: Sequence[Option]) -> Option:
    """Return an option, drawn uniformly."""
    return options[int(random.random() * len(options))]


def _code(scene: Scene) -> int:
    """Return a unique number of a scene among the scenes of its grid."""
    number = 0
    for thing in scene.cells:
        # A digit for each cell; its base counts all possible objects and the empty cell. All colors and shapes count,
        # so that a scene has the same split in worlds of different sizes.
        number *= 1 + len(COLOURS) * len(SHAPES)
        if thing is not None:
            number += 1 + COLOURS.index(thing.colour) * len(SHAPES) + SHAPES.index(thing.shape)
    return number
