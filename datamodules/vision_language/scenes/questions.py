"""Kinds of questions, and how a scene is made for an answer that was chosen before it.

The answer is chosen first, each of a kind's answers as likely, and then a scene that makes it right. So the text of a
question tells nothing about its answer: who does not see the picture is right as often as `Kind.chance` says.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from datamodules.vision_language.scenes.scenes import Scene, Thing, World, choice
from datamodules.vision_language.scenes.wordings import UNSEEN_WORDINGS, WORDINGS


class Wish(NamedTuple):
    """A question without its wording, and what a scene must be like for its answer to be right."""

    slots: dict[str, str]  # what stands in the wording's braces
    required: Callable[[], dict[int, Thing]]  # draws cells with the things that lie in them
    holds: Callable[[Scene], bool] = lambda scene: True  # of a scene that has them: whether the answer is right


class Kind(NamedTuple):
    """A kind of question."""

    name: str
    answers: Callable[[World], list[str]]
    wish: Callable[[np.random.Generator, World, str], Wish]  # a question that has this answer
    binding: bool = False  # whether one property of a thing must be found by another
    fewest: int = 1  # things that some scene must have

    @property
    def wordings(self) -> tuple[str, ...]:
        """That training has."""
        return WORDINGS[self.name]

    @property
    def unseen_wording(self) -> str:
        """That only the test has."""
        return UNSEEN_WORDINGS[self.name]

    def chance(self, world: World) -> float:
        """How often the best guess is right that knows the question and has not seen the picture."""
        return 1 / len(self.answers(world))


def _numbers(world: World) -> list[str]:
    return [str(number) for number in range(1, world.max_objects + 1)]


def _numbers_and_none(world: World) -> list[str]:
    return ["0", *_numbers(world)]


def _yes_or_no(world: World) -> list[str]:
    return ["yes", "no"]


# -- what lies where ---------------------------------------------------------------------------------------------------


def _colour_at(random: np.random.Generator, world: World, answer: str) -> Wish:
    cell = choice(random, world.cells)
    return Wish({"place": world.places[cell]}, lambda: {cell: world.thing(random, colour=answer)})


def _shape_at(random: np.random.Generator, world: World, answer: str) -> Wish:
    cell = choice(random, world.cells)
    return Wish({"place": world.places[cell]}, lambda: {cell: world.thing(random, shape=answer)})


def _thing_at(random: np.random.Generator, world: World, answer: str) -> Wish:
    cell = choice(random, world.cells)
    return Wish({"place": world.places[cell]}, lambda: {cell: Thing(*answer.split())})


def _empty(random: np.random.Generator, world: World, answer: str) -> Wish:
    cell = choice(random, world.cells)
    slots = {"place": world.places[cell]}
    if answer == "no":
        return Wish(slots, lambda: {cell: world.thing(random)})
    return Wish(slots, dict, lambda scene: scene.cells[cell] is None)


# -- how many ----------------------------------------------------------------------------------------------------------


def _count(random: np.random.Generator, world: World, answer: str) -> Wish:
    number = int(answer)
    return Wish({}, lambda: _scattered(random, world, number), _has(number))


def _count_shape(random: np.random.Generator, world: World, answer: str) -> Wish:
    number, shape = int(answer), choice(random, world.forms)
    return Wish(
        {"shape": shape}, lambda: _scattered(random, world, number, shape=shape), _has(number, shape=shape)
    )


def _count_colour(random: np.random.Generator, world: World, answer: str) -> Wish:
    number, colour = int(answer), choice(random, world.palette)
    return Wish(
        {"colour": colour}, lambda: _scattered(random, world, number, colour=colour), _has(number, colour=colour)
    )


def _has_colour(random: np.random.Generator, world: World, answer: str) -> Wish:
    colour = choice(random, world.palette)
    if answer == "yes":
        return Wish({"colour": colour}, lambda: _scattered(random, world, 1, colour=colour))
    return Wish({"colour": colour}, dict, _has(0, colour=colour))


# -- binding: one property found by another ----------------------------------------------------------------------------


def _exists(random: np.random.Generator, world: World, answer: str) -> Wish:
    thing = world.thing(random)
    slots = {"thing": str(thing)}
    if answer == "yes":
        return Wish(slots, lambda: _placed(random, world, thing))

    def without() -> dict[int, Thing]:
        # In every second picture without it there are its colour and its shape, each on something else.
        if world.max_objects == 1 or random.random() < 0.5:
            return {}
        shape = choice(random, [shape for shape in world.forms if shape != thing.shape])
        colour = choice(random, [colour for colour in world.palette if colour != thing.colour])
        return _placed(random, world, Thing(thing.colour, shape), Thing(colour, thing.shape))

    return Wish(slots, without, lambda scene: thing not in scene.cells)


def _where(random: np.random.Generator, world: World, answer: str) -> Wish:
    thing, cell = world.thing(random), world.places.index(answer)
    return Wish({"thing": str(thing)}, lambda: {cell: thing}, _once(thing))


def _colour_of(random: np.random.Generator, world: World, answer: str) -> Wish:
    shape = choice(random, world.forms)
    return Wish({"shape": shape}, lambda: _placed(random, world, Thing(answer, shape)), _has(1, shape=shape))


def _shape_of(random: np.random.Generator, world: World, answer: str) -> Wish:
    colour = choice(random, world.palette)
    return Wish({"colour": colour}, lambda: _placed(random, world, Thing(colour, answer)), _has(1, colour=colour))


def _relation(random: np.random.Generator, world: World, answer: str) -> Wish:
    one = world.thing(random)
    other = choice(random, [thing for thing in world.things if thing != one])
    direction = choice(random, list(DIRECTIONS))
    pairs = [(here, there) for here in world.cells for there in world.cells if here != there]
    right = [pair for pair in pairs if DIRECTIONS[direction](world.grid, *pair) == (answer == "yes")]
    return Wish(
        {"thing": str(one), "direction": direction, "other": str(other)},
        lambda: dict(zip(choice(random, right), (one, other), strict=True)),
        lambda scene: _once(one)(scene) and _once(other)(scene),
    )


DIRECTIONS: dict[str, Callable[[int, int, int], bool]] = {
    "left of": lambda grid, one, other: one % grid < other % grid,
    "right of": lambda grid, one, other: one % grid > other % grid,
    "above": lambda grid, one, other: one // grid < other // grid,
    "below": lambda grid, one, other: one // grid > other // grid,
}
"""Whether the first cell lies there, seen from the second."""


def _has(number: int, colour: str | None = None, shape: str | None = None) -> Callable[[Scene], bool]:
    """So many things (of the colour, of the shape) and no more."""

    def holds(scene: Scene) -> bool:
        found = [thing for thing in scene.things if colour in (None, thing.colour) and shape in (None, thing.shape)]
        return len(found) == number

    return holds


def _once(thing: Thing) -> Callable[[Scene], bool]:
    return lambda scene: scene.cells.count(thing) == 1


def _placed(random: np.random.Generator, world: World, *things: Thing) -> dict[int, Thing]:
    """The things in random cells."""
    cells = random.permutation(len(world.cells))[: len(things)].tolist()
    return dict(zip(cells, things, strict=True))


def _scattered(
    random: np.random.Generator, world: World, number: int, colour: str | None = None, shape: str | None = None
) -> dict[int, Thing]:
    """Random things (of the colour, of the shape) in random cells."""
    return _placed(random, world, *(world.thing(random, colour, shape) for _ in range(number)))


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("colour_at", lambda world: list(world.palette), _colour_at),
        Kind("shape_at", lambda world: list(world.forms), _shape_at),
        Kind("thing_at", lambda world: list(map(str, world.things)), _thing_at),
        Kind("empty", _yes_or_no, _empty),
        Kind("count", _numbers, _count),
        Kind("count_shape", _numbers_and_none, _count_shape),
        Kind("count_colour", _numbers_and_none, _count_colour),
        Kind("has_colour", _yes_or_no, _has_colour),
        Kind("exists", _yes_or_no, _exists, binding=True),
        Kind("where", lambda world: world.places, _where, binding=True),
        Kind("colour_of", lambda world: list(world.palette), _colour_of, binding=True),
        Kind("shape_of", lambda world: list(world.forms), _shape_of, binding=True),
        Kind("relation", _yes_or_no, _relation, binding=True, fewest=2),
    )
}
"""All kinds by their names."""
