"""The facts of a manual: assemblies with numbered parts."""

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
    """Within a chapter no two parts have anything in common."""

    number: int
    name: str
    material: str
    function: str
    values: dict[str, str]  # by column, with unit
    colour: str
    shape: str
    cell: int  # of the drawing, in reading order


class Chapter(NamedTuple):
    """An assembly."""

    title: str  # the assembly's name; no two chapters of a manual share it
    parts: tuple[Part, ...]  # in the order of their numbers
    pages: dict[PageKind, int]  # number of its page of each kind, from 1

    @property
    def columns(self) -> tuple[str, ...]:
        """Of its table, beside number and name."""
        return tuple(self.parts[0].values)


class Device(NamedTuple):
    """What a manual is about."""

    name: str
    chapters: tuple[Chapter, ...]  # in the order of their pages

    def number_of_pages(self) -> int:
        return max(max(chapter.pages.values()) for chapter in self.chapters)


def places(grid: int) -> list[str]:
    """What the cells of a drawing are called, in reading order."""
    return [f"{row} {side}" for row in _ROWS[grid] for side in _SIDES[grid]]


def make_device(random: np.random.Generator, settings: ManualSettings, name: str) -> Device:
    """A random device. Chapters follow each other; a chapter's pages stand together."""
    chapters, page = [], 1
    order = some(random, settings.pages, len(settings.pages)) if settings.shuffled_pages else settings.pages
    for title in some(random, ASSEMBLIES, settings.chapters):
        pages = {kind: page + place for place, kind in enumerate(order)}
        chapters.append(Chapter(title, _parts(random, settings), pages))
        page += len(order)
    return Device(name, tuple(chapters))


def some(random: np.random.Generator, among: Sequence[Drawn], number: int) -> list[Drawn]:
    """So many different ones, in random order."""
    return [among[place] for place in random.permutation(len(among))[:number].tolist()]


def one(random: np.random.Generator, among: Sequence[Drawn]) -> Drawn:
    """Each is as likely."""
    return among[int(random.random() * len(among))]


def _parts(random: np.random.Generator, settings: ManualSettings) -> tuple[Part, ...]:
    count = settings.parts
    numbers = sorted(some(random, range(1, settings.highest_number + 1), count))
    columns = some(random, tuple(COLUMNS), settings.columns)
    values = {column: [f"{value} {COLUMNS[column]}" for value in some(random, LISTED, count)] for column in columns}
    words = (some(random, among, count) for among in (NAMES, MATERIALS, FUNCTIONS, COLOURS, SHAPES))
    names, materials, functions, colours, shapes = words
    cells = some(random, range(settings.grid**2), count)
    return tuple(
        Part(
            numbers[i], names[i], materials[i], functions[i],
            {column: values[column][i] for column in columns}, colours[i], shapes[i], cells[i],
        )
        for i in range(count)
    )  # fmt: skip
