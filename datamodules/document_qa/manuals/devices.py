"""Generates the facts of a manual: assemblies with numbered parts."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from datamodules.document_qa.manuals.settings import COLUMNS, LISTED, ManualSettings, PageKind

ASSEMBLIES = ("pump", "motor", "press", "mixer", "cooler", "feeder", "gearbox", "brake", "crane", "dryer")
NAMES = ("valve", "shaft", "spring", "rotor", "piston", "nozzle", "lever", "flange", "bearing", "sensor", "filter")
MATERIALS = ("brass", "steel", "copper", "rubber", "nylon", "zinc", "bronze", "ceramic", "glass", "titanium")
FUNCTIONS = ("cooling", "sealing", "mixing", "heating", "braking", "steering", "damping", "measuring", "locking")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "black", "cyan", "brown")
SHAPES = ("circle", "square", "triangle", "diamond", "ring", "cross", "star", "hexagon", "bar")

_ROWS = {2: ("top", "bottom"), 3: ("top", "middle", "bottom")}
_SIDES = {2: ("left", "right"), 3: ("left", "centre", "right")}

Drawn = TypeVar("Drawn")


class Part(NamedTuple):
    """A part. No two parts of a chapter share a value."""

    number: int
    name: str
    material: str
    function: str
    values: dict[str, str]  # {column: value with unit}
    colour: str
    shape: str
    cell: int  # cell of the drawing, in reading order


class Chapter(NamedTuple):
    """A chapter about an assembly."""

    title: str  # name of the assembly, unique within the manual
    parts: tuple[Part, ...]  # sorted by number
    pages: dict[PageKind, int]  # {kind: page number, from 1}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table, besides number and name."""
        return tuple(self.parts[0].values)


class Device(NamedTuple):
    """The device that a manual describes."""

    name: str
    chapters: tuple[Chapter, ...]  # sorted by page


def cell_names(grid: int) -> list[str]:
    """Return the names of a drawing's cells, in reading order."""
    return [f"{row} {side}" for row in _ROWS[grid] for side in _SIDES[grid]]


def make_device(random: np.random.Generator, settings: ManualSettings, name: str) -> Device:
    """Generate a random device. The pages of a chapter follow each other."""
    chapters, page = [], 1
    order = choose(random, settings.pages, len(settings.pages)) if settings.shuffled_pages else settings.pages
    for title in choose(random, ASSEMBLIES, settings.chapters):
        pages = {kind: page + offset for offset, kind in enumerate(order)}
        chapters.append(Chapter(title, _parts(random, settings), pages))
        page += len(order)
    return Device(name, tuple(chapters))


def choose(random: np.random.Generator, among: Sequence[Drawn], number: int) -> list[Drawn]:
    """Draw `number` different elements, in random order."""
    return [among[index] for index in random.permutation(len(among))[:number].tolist()]


def choose_one(random: np.random.Generator, among: Sequence[Drawn]) -> Drawn:
    """Draw an element, each with the same probability."""
    return among[int(random.random() * len(among))]


def _parts(random: np.random.Generator, settings: ManualSettings) -> tuple[Part, ...]:
    count = settings.parts_per_chapter
    numbers = sorted(choose(random, range(1, settings.highest_number + 1), count))
    columns = choose(random, tuple(COLUMNS), settings.columns)
    values = {column: [f"{value} {COLUMNS[column]}" for value in choose(random, LISTED, count)] for column in columns}
    words = (choose(random, among, count) for among in (NAMES, MATERIALS, FUNCTIONS, COLOURS, SHAPES))
    names, materials, functions, colours, shapes = words
    cells = choose(random, range(settings.grid**2), count)
    return tuple(
        Part(
            number=numbers[i], name=names[i], material=materials[i], function=functions[i],
            values={column: values[column][i] for column in columns}, colour=colours[i], shape=shapes[i], cell=cells[i],
        )
        for i in range(count)
    )  # fmt: skip
