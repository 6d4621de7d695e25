"""Defines types of questions, and constructs a scene for a given answer.

The answer is drawn first, uniformly among the answers of a kind, and then a scene for which it is right. The text of a
question therefore reveals nothing about its answer: without the image a guess is right with probability `Kind.chance`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from datamodules.vision_language.scenes.scene import Scene, SceneObject, World, choice
from datamodules.vision_language.scenes.templates import UNSEEN_WORDINGS, WORDINGS


class SceneSpec(NamedTuple):
    """A question without its wording, and the conditions on a scene that make its answer right."""

    slots: dict[str, str]  # values of the template's slots
    required: Callable[[], dict[int, SceneObject]]  # draws {cell: object} that the scene must have
    holds: Callable[[Scene], bool] = lambda scene: True  # whether the answer is right for such a scene


class QuestionType(NamedTuple):
    """A kind of question: its possible answers, and how a scene with a given answer is drawn."""

    name: str
    answers: Callable[[World], list[str]]
    make_spec: Callable[[np.random.Generator, World, str], SceneSpec]  # draws a question with this answer
    binding: bool = False  # whether one property of an object must be found by another
    fewest: int = 1  # minimum number of objects that a scene must be able to have

    @property
    def wordings(self) -> tuple[str, ...]:
        """Templates of training."""
        return WORDINGS[self.name]

    @property
    def unseen_wording(self) -> str:
        """Template that only the test uses."""
        return UNSEEN_WORDINGS[self.name]

    def chance(self, world: World) -> float:
        """Return the accuracy of the best guess from the question alone."""
        return 1 / len(self.answers(world))


def _numbers(world: World) -> list[str]:
    return [str(number) for number in range(1, world.max_objects + 1)]


def _numbers_and_none(world: World) -> list[str]:
    return ["0", *_numbers(world)]


def _yes_or_no(world: World) -> list[str]:
    return ["yes", "no"]


# -- contents of a cell ------------------------------------------------------------------------------------------------


def _colour_at(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    cell = choice(random, world.cells)
    return SceneSpec({"place": world.cell_names[cell]}, lambda: {cell: world.draw_object(random, colour=answer)})


def _shape_at(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    cell = choice(random, world.cells)
    return SceneSpec({"place": world.cell_names[cell]}, lambda: {cell: world.draw_object(random, shape=answer)})


def _thing_at(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    cell = choice(random, world.cells)
    return SceneSpec({"place": world.cell_names[cell]}, lambda: {cell: SceneObject(*answer.split())})


def _empty(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    cell = choice(random, world.cells)
    slots = {"place": world.cell_names[cell]}
    if answer == "no":
        return SceneSpec(slots, lambda: {cell: world.draw_object(random)})
    return SceneSpec(slots, dict, lambda scene: scene.cells[cell] is None)


# -- counts ------------------------------------------------------------------------------------------------------------


def _count(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    number = int(answer)
    return SceneSpec({}, lambda: _scatter_objects(random, world, number), _has_number(number))


def _count_shape(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    number, shape = int(answer), choice(random, world.forms)
    return SceneSpec(
        {"shape": shape}, lambda: _scatter_objects(random, world, number, shape=shape), _has_number(number, shape=shape)
    )


def _count_colour(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    number, colour = int(answer), choice(random, world.palette)
    return SceneSpec(
        {"colour": colour},
        lambda: _scatter_objects(random, world, number, colour=colour),
        _has_number(number, colour=colour),
    )


def _has_colour(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    colour = choice(random, world.palette)
    if answer == "yes":
        return SceneSpec({"colour": colour}, lambda: _scatter_objects(random, world, 1, colour=colour))
    return SceneSpec({"colour": colour}, dict, _has_number(0, colour=colour))


# -- binding: one property is found by another -------------------------------------------------------------------------


def _exists(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    thing = world.draw_object(random)
    slots = {"thing": str(thing)}
    if answer == "yes":
        return SceneSpec(slots, lambda: _place_objects(random, world, thing))

    def without() -> dict[int, SceneObject]:
        # Half of the scenes without the object have its color and its shape, each on another object.
        if world.max_objects == 1 or random.random() < 0.5:
            return {}
        shape = choice(random, [shape for shape in world.forms if shape != thing.shape])
        colour = choice(random, [colour for colour in world.palette if colour != thing.colour])
        return _place_objects(random, world, SceneObject(thing.colour, shape), SceneObject(colour, thing.shape))

    return SceneSpec(slots, without, lambda scene: thing not in scene.cells)


def _where(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    thing, cell = world.draw_object(random), world.cell_names.index(answer)
    return SceneSpec({"thing": str(thing)}, lambda: {cell: thing}, _once(thing))


def _colour_of(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    shape = choice(random, world.forms)
    return SceneSpec(
        {"shape": shape}, lambda: _place_objects(random, world, SceneObject(answer, shape)), _has_number(1, shape=shape)
    )


def _shape_of(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    colour = choice(random, world.palette)
    return SceneSpec(
        {"colour": colour},
        lambda: _place_objects(random, world, SceneObject(colour, answer)),
        _has_number(1, colour=colour),
    )


def _relation(random: np.random.Generator, world: World, answer: str) -> SceneSpec:
    first = world.draw_object(random)
    second = choice(random, [thing for thing in world.objects if thing != first])
    direction = choice(random, list(DIRECTIONS))
    pairs = [(here, there) for here in world.cells for there in world.cells if here != there]
    # Cells for which the answer is right; the objects are placed in a random pair of them.
    right = [pair for pair in pairs if DIRECTIONS[direction](world.grid, *pair) == (answer == "yes")]
    return SceneSpec(
        {"thing": str(first), "direction": direction, "other": str(second)},
        lambda: dict(zip(choice(random, right), (first, second), strict=True)),
        lambda scene: _once(first)(scene) and _once(second)(scene),
    )


DIRECTIONS: dict[str, Callable[[int, int, int], bool]] = {
    "left of": lambda grid, first, second: first % grid < second % grid,
    "right of": lambda grid, first, second: first % grid > second % grid,
    "above": lambda grid, first, second: first // grid < second // grid,
    "below": lambda grid, first, second: first // grid > second // grid,
}
"""Whether the first cell lies in this direction from the second."""


def _has_number(number: int, colour: str | None = None, shape: str | None = None) -> Callable[[Scene], bool]:
    """Return a condition: the scene has exactly this number of objects (of the color, of the shape)."""

    def holds(scene: Scene) -> bool:
        matching = [thing for thing in scene.objects if colour in (None, thing.colour) and shape in (None, thing.shape)]
        return len(matching) == number

    return holds


def _once(thing: SceneObject) -> Callable[[Scene], bool]:
    return lambda scene: scene.cells.count(thing) == 1


def _place_objects(random: np.random.Generator, world: World, *things: SceneObject) -> dict[int, SceneObject]:
    """Place the objects in random cells."""
    cells = random.permutation(len(world.cells))[: len(things)].tolist()
    return dict(zip(cells, things, strict=True))


def _scatter_objects(
    random: np.random.Generator, world: World, number: int, colour: str | None = None, shape: str | None = None
) -> dict[int, SceneObject]:
    """Place random objects (of the color, of the shape) in random cells."""
    return _place_objects(random, world, *(world.draw_object(random, colour, shape) for _ in range(number)))


KINDS: dict[str, QuestionType] = {
    kind.name: kind
    for kind in (
        QuestionType("colour_at", lambda world: list(world.palette), _colour_at),
        QuestionType("shape_at", lambda world: list(world.forms), _shape_at),
        QuestionType("thing_at", lambda world: list(map(str, world.objects)), _thing_at),
        QuestionType("empty", _yes_or_no, _empty),
        QuestionType("count", _numbers, _count),
        QuestionType("count_shape", _numbers_and_none, _count_shape),
        QuestionType("count_colour", _numbers_and_none, _count_colour),
        QuestionType("has_colour", _yes_or_no, _has_colour),
        QuestionType("exists", _yes_or_no, _exists, binding=True),
        QuestionType("where", lambda world: world.cell_names, _where, binding=True),
        QuestionType("colour_of", lambda world: list(world.palette), _colour_of, binding=True),
        QuestionType("shape_of", lambda world: list(world.forms), _shape_of, binding=True),
        QuestionType("relation", _yes_or_no, _relation, binding=True, fewest=2),
    )
}
"""All kinds by name."""
