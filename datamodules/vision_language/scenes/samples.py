"""Tasks about scenes: a sample is a pure function of (seed, split, epoch, index)."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.image_chat import MARKER
from datamodules.vision_language.scenes.captions import caption
from datamodules.vision_language.scenes.drawing import draw
from datamodules.vision_language.scenes.questions import KINDS, Kind, Wish
from datamodules.vision_language.scenes.scenes import Scene, Split, World, choice
from datamodules.vision_language.scenes.wordings import CAPTION_PROMPT
from engine.randomness import hash_bits

if TYPE_CHECKING:
    from PIL.Image import Image

GENERATOR_VERSION = 2
"""Goes up with every change that gives other samples."""

CAPTION = "caption"
"""The kind of a sample that asks no question."""

_STREAM = 0x5CE  # this generator's name beside whatever else hashes the same seed
_TASK, _PICTURE = 0, 1
_TRIES = 20_000  # scenes that are made for a question before it is taken to have none

ImagePosition = Literal["question_first", "image_first"]
"""What comes first: the question, so that the image's features see what is asked, or the image."""


class SceneSample(NamedTuple):
    """A scene with a question about it, or with the wish to describe it."""

    scene: Scene
    kind: str  # a name of KINDS, or CAPTION
    seen_wording: bool  # whether training has questions in these words
    question: str  # with the marker
    answer: str
    drawn_by: int  # key of the random numbers of its picture


@dataclass(frozen=True)
class Tasks:
    """What is asked about scenes.

    Args:
        caption_share: share of the samples that ask to describe the scene; the others ask questions.
        question_mix: share of each kind of question, in any unit; a kind left out has none. Empty: all
            kinds alike that the world has scenes for.
        unseen_wordings: share of the test's questions whose wording training never has; they are told apart.
        image_position: what comes first in the user's text.
    """

    caption_share: float = 0.3
    question_mix: dict[str, float] = field(default_factory=dict)
    unseen_wordings: float = 0.2
    image_position: ImagePosition = "question_first"

    def __post_init__(self) -> None:
        for name in ("caption_share", "unseen_wordings"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"tasks.{name}: found {getattr(self, name)}, expected a share in [0, 1]")
        mix = self.question_mix
        if mix and (set(mix) - set(KINDS) or min(mix.values()) < 0 or sum(mix.values()) <= 0):
            raise ValueError(
                f"tasks.question_mix: found {mix}, expected shares of 0 or more of {', '.join(KINDS)}, and one above 0"
            )


@dataclass(frozen=True)
class SceneTasks:
    """Scenes of a world with tasks about them.

    Args:
        world: what scenes there are.
        tasks: what is asked about them.
        seed: of everything but the splits.

    Raises:
        ValueError: no scene of this world has what a kind of question needs.
    """

    world: World
    tasks: Tasks
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in self.tasks.question_mix.items():
            kind = KINDS[name]
            if share and kind.fewest > self.world.max_objects:
                raise ValueError(
                    f"tasks.question_mix: {kind.name} needs scenes with {kind.fewest} things, world.max_objects is "
                    f"{self.world.max_objects}; raise it, or leave {kind.name} out of the mix"
                )

    @property
    def kinds(self) -> list[Kind]:
        """That are asked, each with a share above 0."""
        mix = self.tasks.question_mix
        if mix:
            return [kind for kind in KINDS.values() if mix.get(kind.name)]
        return [kind for kind in KINDS.values() if kind.fewest <= self.world.max_objects]

    @cached_property
    def shares(self) -> dict[str, float]:
        """Of each kind among the questions."""
        sizes = {kind.name: self.tasks.question_mix.get(kind.name, 1.0) for kind in self.kinds}
        whole = sum(sizes.values())
        return {name: size / whole for name, size in sizes.items()}

    def chance(self) -> float:
        """How often the best guess without the picture is right, over all questions."""
        return sum(share * KINDS[name].chance(self.world) for name, share in self.shares.items())

    def sample(self, split: Split, epoch: int, index: int) -> SceneSample:
        """One sample."""
        random = self._random(split, epoch, index, _TASK)
        drawn_by = self._key(split, epoch, index, _PICTURE)
        if random.random() < self.tasks.caption_share:
            scene = self._scene(random, split, Wish({}, dict), CAPTION, self._objects(random.random()))
            return SceneSample(scene, CAPTION, True, self._placed(CAPTION_PROMPT), caption(scene), drawn_by)
        kind = self._kind(random.random())
        answer = choice(random, kind.answers(self.world))
        wish = kind.wish(random, self.world, answer)
        scene = self._scene(random, split, wish, f"{kind.name} with the answer {answer}")
        seen = not (split == Split.TEST and random.random() < self.tasks.unseen_wordings)
        wording = choice(random, kind.wordings) if seen else kind.unseen_wording
        question = wording.format(**wish.slots)
        return SceneSample(scene, kind.name, seen, self._placed(question), answer, drawn_by)

    def picture(self, sample: SceneSample) -> "Image":
        """What the sample looks like."""
        return draw(sample.scene, self.world.size, _generator(sample.drawn_by))

    def _scene(
        self, random: np.random.Generator, split: Split, wish: Wish, what: str, objects: int | None = None
    ) -> Scene:
        """A scene of the split that is as wished. Which one is as random as the wish lets it be."""
        for _ in range(_TRIES):
            scene = self.world.completed(random, wish.required(), objects)
            if wish.holds(scene) and self.world.split_of(scene) == split:
                return scene
        raise ValueError(
            f"{what}: found no such scene for the {split.name.lower()} among {_TRIES} of this world; it is too small "
            f"({self.world}): raise world.grid, world.max_objects or world.held_out, or leave the kind of question out"
        )

    def _objects(self, uniform: float) -> int:
        """How many things a described scene has, in cubic shares.

        There are few scenes of one thing, and so few in the test that who always says the same would often be right.
        """
        return 1 + int(np.searchsorted(self._until[:-1], uniform, side="right"))

    @cached_property
    def _until(self) -> NDArray[np.float64]:
        """Of each number of things, the share of it and of those below it."""
        shares = np.cumsum(np.arange(1.0, self.world.max_objects + 1) ** 3)
        return shares / shares[-1]

    def _kind(self, uniform: float) -> Kind:
        """The kind at a place between 0 and 1 of the mix."""
        until = 0.0
        for name, share in self.shares.items():
            until += share
            if uniform < until:
                break
        return KINDS[name]

    def _placed(self, said: str) -> str:
        parts = (said, MARKER) if self.tasks.image_position == "question_first" else (MARKER, said)
        return "\n".join(parts)

    def _key(self, split: Split, epoch: int, index: int, part: int) -> int:
        return int(hash_bits(self.seed, _STREAM, GENERATOR_VERSION, split, epoch, index, part))

    def _random(self, split: Split, epoch: int, index: int, part: int) -> np.random.Generator:
        return _generator(self._key(split, epoch, index, part))


def _generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))
