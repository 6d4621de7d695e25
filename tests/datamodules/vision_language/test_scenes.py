"""The questions about scenes and their answers agree, and questions alone do not reveal answers."""

import re
from collections import Counter, defaultdict

import numpy as np
import pytest

from datamodules.multimodal.synthetic_split import Split
from datamodules.vision_language.chat_file import MARKER
from datamodules.vision_language.scenes.captions import caption, object_f1, parse_caption
from datamodules.vision_language.scenes.grading import OUTCOMES, grade
from datamodules.vision_language.scenes.question_types import KINDS
from datamodules.vision_language.scenes.scene import COLOURS, SHAPES, Scene, SceneObject, World, cell_names
from datamodules.vision_language.scenes.tasks import CAPTION, SceneSample, SceneTasks, Tasks

WORLD = World()


def _questions(kind: str, number: int, split: Split = Split.TRAIN, world: World = WORLD) -> list[SceneSample]:
    tasks = SceneTasks(world, Tasks(caption_share=0, task_mix={kind: 1.0}, unseen_wordings=0.3))
    return [tasks.sample(split, 0, index) for index in range(number)]


# What is right, found again: from the words of the question and the picture's cells alone.


def _right_answer(question: str, scene: Scene) -> str:
    words = question.replace(MARKER, "").strip()
    names = cell_names(scene.grid)
    cells = dict(zip(names, scene.cells, strict=True))
    things = [(cell, thing) for cell, thing in cells.items() if thing]
    output = [SceneObject(*found) for found in re.findall(rf"({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})", words)]
    colors = [color for color in COLOURS if re.search(rf"\b{color}\b", words)]
    shapes = [shape for shape in SHAPES if re.search(rf"\b{shape}s?\b", words)]
    named = [name for name in names if re.search(rf"\b{name}\b", words)]
    cell = named[0] if named else ""
    yes = {True: "yes", False: "no"}
    if len(output) == 2:
        (one,), (other,) = ([names.index(cell) for cell, thing in things if thing == what] for what in output)
        (row, column), (other_row, other_column) = divmod(one, scene.grid), divmod(other, scene.grid)
        lies = {
            "left of": column < other_column,
            "right of": column > other_column,
            "above": row < other_row,
            "below": row > other_row,
        }
        (direction,) = (direction for direction in lies if direction in words)
        return yes[lies[direction]]
    if output:
        found = [cell for cell, thing in things if thing == output[0]]
        if "where" in words or "place" in words:
            (cell,) = found
            return cell
        return yes[bool(found)]
    if "empty" in words or "nothing" in words:
        return yes[cells[cell] is None]
    if "how many" in words or "count" in words:
        counted = [t for _, t in things if t.colour in (colors or COLOURS) and t.shape in (shapes or SHAPES)]
        return str(len(counted))
    if cell:
        thing = cells[cell]
        assert thing is not None
        if "colour of" in words or re.search("(what|which) colour (is|are)", words):
            return thing.colour
        return thing.shape if re.search("shape (is )?at", words) and "colour" not in words else str(thing)
    if words.startswith("is "):
        return yes[any(thing.colour == colors[0] for _, thing in things)]
    (match,) = (thing for _, thing in things if thing.colour in colors or thing.shape in shapes)
    return match.shape if colors else match.colour


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", Split)
def test_the_answer_follows_from_the_scene(kind: str, split: Split) -> None:
    for sample in _questions(kind, 150, split) + _questions(kind, 50, split, World(3, 6, 5, 6, 48)):
        assert _right_answer(sample.question, sample.scene) == sample.answer, sample


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_guess_from_the_question_alone_is_at_chance(kind: str) -> None:
    # The most frequent answer of each wording is fitted on one half and scored on the other, and vice versa.
    samples = _questions(kind, 8000, Split.TEST)  # with the fewest scenes to choose from
    halves = samples[::2], samples[1::2]
    hits = [hit for pair in (halves, halves[::-1]) for hit in _guessed(*pair)]
    chance = KINDS[kind].chance(WORLD)
    assert chance == 1 / len({sample.answer for sample in samples})
    assert abs(np.mean(hits) - chance) < 0.02  # 3.6 standard deviations of as many tosses of a coin


def _guessed(seen: list[SceneSample], asked: list[SceneSample]) -> list[bool]:
    known: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sample in seen:
        known[sample.question][sample.answer] += 1
    guesses = {question: answers.most_common(1)[0][0] for question, answers in known.items()}
    fallback = Counter(sample.answer for sample in seen).most_common(1)[0][0]
    return [guesses.get(sample.question, fallback) == sample.answer for sample in asked]


@pytest.mark.parametrize("split", Split)
def test_no_caption_is_often_right(split: Split) -> None:
    tasks = SceneTasks(WORLD, Tasks(caption_share=1.0))
    samples = [tasks.sample(split, 0, index) for index in range(3000)]
    assert Counter(sample.answer for sample in samples).most_common(1)[0][1] / len(samples) < 0.015
    objects = Counter(len(sample.scene.objects) for sample in samples)
    shares = [objects[number] / len(samples) for number in (1, 2, 3)]
    assert shares == pytest.approx([1 / 36, 8 / 36, 27 / 36], abs=0.03)


def test_chance_over_all_questions_is_the_mix_of_the_kinds() -> None:
    mix = {"empty": 1.0, "thing_at": 3.0}
    assert SceneTasks(WORLD, Tasks(task_mix=mix)).chance() == pytest.approx(0.25 / 2 + 0.75 / 12)


def test_the_share_of_each_kind_is_the_mix() -> None:
    tasks = SceneTasks(WORLD, Tasks(caption_share=0.5, task_mix={"empty": 1.0, "where": 3.0}))
    kinds = Counter(tasks.sample(Split.TRAIN, 0, index).kind for index in range(4000))
    expected = {CAPTION: 2000, "where": 1500, "empty": 500}
    assert kinds.keys() == expected.keys()
    assert all(abs(kinds[kind] - number) < 120 for kind, number in expected.items())


def test_the_training_can_have_a_mix_of_its_own() -> None:
    mixes = {"task_mix": {"empty": 1.0}, "training_mix": {"empty": 1.0, "where": 3.0}}
    tasks = SceneTasks(WORLD, Tasks(caption_share=0, **mixes))
    kinds = {split: Counter(tasks.sample(split, 0, index).kind for index in range(400)) for split in Split}
    assert abs(kinds[Split.TRAIN]["where"] - 300) < 40
    assert kinds[Split.TRAIN].keys() == {"empty", "where"}
    assert kinds[Split.VALIDATION] == kinds[Split.TEST] == {"empty": 400}
    assert [kind.name for kind in tasks.kinds] == ["empty"]
    assert tasks.chance() == 0.5


@pytest.mark.slow
def test_no_scene_is_in_two_splits() -> None:
    seen: dict[Split, set[Scene]] = {}
    for split in Split:
        tasks = SceneTasks(WORLD, Tasks(), seed=split)
        seen[split] = {tasks.sample(split, epoch, index).scene for epoch in range(2) for index in range(1500)}
    assert all(len(scenes) > 300 for scenes in seen.values())
    assert not seen[Split.TRAIN] & seen[Split.VALIDATION] | seen[Split.TRAIN] & seen[Split.TEST]
    assert not seen[Split.VALIDATION] & seen[Split.TEST]


def test_about_the_configured_share_is_held_out() -> None:
    random = np.random.default_rng(0)
    splits = Counter(WORLD.split_of(WORLD.random_scene(random, {}, 3)) for _ in range(4000))
    assert abs(splits[Split.TRAIN] - 3200) < 150
    assert abs(splits[Split.TEST] - 400) < 100


def test_unseen_wordings_are_in_the_test_alone() -> None:
    tasks = SceneTasks(WORLD, Tasks(caption_share=0))
    for split in Split:
        samples = [tasks.sample(split, 0, index) for index in range(1000)]
        unseen = [sample for sample in samples if not sample.seen_wording]
        assert len(unseen) == 0 if split != Split.TEST else abs(len(unseen) - 200) < 50
    trained = _skeletons(sample for kind in KINDS for sample in _questions(kind, 100))
    tested = _skeletons(s for kind in KINDS for s in _questions(kind, 100, Split.TEST) if not s.seen_wording)
    assert len(tested) == len(KINDS)
    assert not trained & tested


def _skeletons(samples) -> set[str]:  # noqa: ANN001
    """Questions without colors, shapes, positions and directions."""
    variable = [*COLOURS, *(f"{shape}s?" for shape in SHAPES), *cell_names(2), "left of", "right of", "above", "below"]
    return {re.sub(rf"\b({'|'.join(variable)})\b", "_", sample.question) for sample in samples}


def test_the_image_stands_before_or_after_the_question() -> None:
    first = SceneTasks(WORLD, Tasks(image_position="image_first")).sample(Split.TRAIN, 0, 0)
    last = SceneTasks(WORLD, Tasks(image_position="question_first")).sample(Split.TRAIN, 0, 0)
    assert first.question == f"{MARKER}\n{last.question.removesuffix(MARKER).strip()}"


def test_a_caption_describes_the_scene_and_can_be_parsed() -> None:
    scene = Scene((None, SceneObject("red", "circle"), SceneObject("blue", "square"), None))
    text = caption(scene)
    assert text == "red circle top right, blue square bottom left"
    assert parse_caption(text) == Counter(
        {(SceneObject("red", "circle"), "top right"): 1, (SceneObject("blue", "square"), "bottom left"): 1}
    )
    assert object_f1(text, text) == 1
    assert object_f1("red circle top right", text) == pytest.approx(2 / 3)
    assert object_f1("red circle top left, blue square bottom left", text) == pytest.approx(1 / 2)
    assert object_f1("red circle top right, " * 4, text) == pytest.approx(2 / 6)
    assert object_f1("nonsense", text) == 0


def test_answers_are_graded_into_the_outcomes_of_their_kind() -> None:
    scene = Scene((SceneObject("red", "circle"), None, None, None))
    described = SceneSample(scene, CAPTION, True, "", "red circle top left", 0)
    assert grade(described, " Red circle  top left.") == dict.fromkeys(
        ["exact", "captions/exact", "captions/object_f1"], (1.0, 1.0)
    )
    question = described._replace(kind="colour_of", answer="red")
    assert grade(question, "red") == dict.fromkeys(
        ["exact", "questions/exact", "colour_of/exact", "binding/exact"], (1.0, 1.0)
    )
    assert grade(question, "red circle")["exact"] == (0.0, 1.0)
    assert grade(question._replace(seen_wording=False), "red") == {"unseen_wording/exact": (1.0, 1.0)}
    for kind in (CAPTION, *KINDS):
        assert grade(described._replace(kind=kind), "").keys() <= set(OUTCOMES)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"grid": 4}, "world.grid"),
        ({"colours": 7}, "world.colours"),
        ({"shapes": 1}, "world.shapes"),
        ({"max_objects": 5}, "world.max_objects"),
        ({"size": 8}, "world.size"),
        ({"held_out": 1.0}, "world.held_out"),
    ],
)
def test_worlds_that_cannot_be_are_refused_by_name(settings: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        World(**settings)


def test_tasks_that_cannot_be_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"tasks\.task_mix: found .*colour_at, shape_at"):
        Tasks(task_mix={"color_at": 1.0})
    with pytest.raises(ValueError, match=r"tasks\.training_mix: found .*colour_at, shape_at"):
        Tasks(training_mix={"where": 0.0})
    with pytest.raises(ValueError, match=r"tasks\.caption_share"):
        Tasks(caption_share=1.2)
    with pytest.raises(ValueError, match="relation needs scenes with 2 objects, world.max_objects is 1"):
        SceneTasks(World(max_objects=1), Tasks(task_mix={"relation": 1.0}))
    shares_by_use = SceneTasks(World(max_objects=1), Tasks()).shares
    assert shares_by_use
    assert all("relation" not in shares for shares in shares_by_use.values())


def test_a_world_too_small_for_its_splits_is_refused() -> None:
    tasks = SceneTasks(World(1, 2, 2, 1, held_out=0.01), Tasks(caption_share=1.0))
    with pytest.raises(ValueError, match="caption: found no such scene for the test.*world.held_out"):
        tasks.sample(Split.TEST, 0, 0)
