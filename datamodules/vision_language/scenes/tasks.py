"""Generates tasks about scenes; a sample is a pure function of (seed, split, epoch, index)."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.synthetic_split import Split
from datamodules.vision_language.chat_file import MARKER
from datamodules.vision_language.scenes.captions import caption
from datamodules.vision_language.scenes.question_types import KINDS, QuestionType, SceneSpec
from datamodules.vision_language.scenes.render import draw_scene
from datamodules.vision_language.scenes.scene import Scene, World, choice
from datamodules.vision_language.scenes.templates import CAPTION_PROMPT
from engine.determinism.stateless_rng import hash_bits
from engine.number_check import check_numbers

if TYPE_CHECKING:
    from PIL.Image import Image

GENERATOR_VERSION = 2
"""Incremented by every change of the generated samples."""

CAPTION = "caption"
"""Kind of a sample with a caption instead of a question."""

_STREAM = 0x5CE  # hash key of this generator
_TASK, _PICTURE = 0, 1
_TRIES = 20_000  # scenes that are drawn for a question before giving up

ImagePosition = Literal["question_first", "image_first"]
"""Order of the user's text. With the question first, the image's features attend to it."""


class SceneSample(NamedTuple):
    """A scene with a question, or with the request for a caption."""

    scene: Scene
    kind: str  # a name of KINDS, or CAPTION
    seen_wording: bool  # whether training uses this template
    question: str  # with the marker
    answer: str
    drawn_by: int  # key of the random numbers of the image


@dataclass(frozen=True)
class Tasks:
    """Captions and questions about scenes.

    Args:
        caption_share: share of the samples with a caption; the others are questions.
        task_mix: share of each kind of question, in any unit; a missing kind has no share. Empty: all kinds that
            the world has scenes for, with equal shares.
        training_mix: the same for the training; empty: `task_mix`. Kinds that are learned late can be trained more
            often than they are tested.
        unseen_wordings: share of the test's questions with a template that training never uses; they are measured
            separately.
        image_position: order of the user's text.
    """

    caption_share: float = 0.3
    task_mix: dict[str, float] = field(default_factory=dict)
    training_mix: dict[str, float] = field(default_factory=dict)
    unseen_wordings: float = 0.2
    image_position: ImagePosition = "question_first"

    def __post_init__(self) -> None:
        shares = {"caption_share": self.caption_share, "unseen_wordings": self.unseen_wordings}
        check_numbers("tasks.", shares, at_least=0, at_most=1)
        for name in ("task_mix", "training_mix"):
            mix = getattr(self, name)
            if mix and (set(mix) - set(KINDS) or min(mix.values()) < 0 or sum(mix.values()) <= 0):
                raise ValueError(
                    f"tasks.{name}: found {mix}, expected shares of 0 or more of {', '.join(KINDS)}, and one above 0"
                )

    def mix(self, split: Split) -> dict[str, float]:
        """Return the shares of the kinds of questions in a split; empty: all kinds with equal shares."""
        return self.training_mix if split == Split.TRAIN and self.training_mix else self.task_mix


@dataclass(frozen=True)
class SceneTasks:
    """Scenes of a world with tasks about them.

    Args:
        world: set of possible scenes.
        tasks: captions and questions.
        seed: seed of everything except the splits.

    Raises:
        ValueError: no scene of this world satisfies a kind of question.
    """

    world: World
    tasks: Tasks
    seed: int = 0

    def __post_init__(self) -> None:
        for option in ("task_mix", "training_mix"):
            for name, share in getattr(self.tasks, option).items():
                kind = KINDS[name]
                if share and kind.fewest > self.world.max_objects:
                    raise ValueError(
                        f"tasks.{option}: {kind.name} needs scenes with {kind.fewest} objects, world.max_objects is "
                        f"{self.world.max_objects}; raise it, or remove {kind.name} from the mix"
                    )

    @property
    def kinds(self) -> list[QuestionType]:
        """Kinds of questions with a share above 0 in the evaluation."""
        return [KINDS[name] for name in self.shares[Split.TEST]]

    @cached_property
    def shares(self) -> dict[Split, dict[str, float]]:
        """Share of each kind among the questions of a split, without kinds that have none."""
        return {split: self._shares(self.tasks.mix(split)) for split in Split}

    def _shares(self, mix: dict[str, float]) -> dict[str, float]:
        possible = {name: 1.0 for name, kind in KINDS.items() if kind.fewest <= self.world.max_objects}
        sizes = {name: mix[name] for name in KINDS if mix.get(name)} or possible
        total = sum(sizes.values())
        return {name: size / total for name, size in sizes.items()}

    def chance(self) -> float:
        """Return the accuracy of the best guess without the image, over all questions of the evaluation."""
        return sum(share * KINDS[name].chance(self.world) for name, share in self.shares[Split.TEST].items())

    def sample(self, split: Split, epoch: int, index: int) -> SceneSample:
        """Return a sample."""
        random = self._random(split, epoch, index, _TASK)
        # A generator of its own, so that a picture can be drawn without its question.
        drawn_by = self._key(split, epoch, index, _PICTURE)
        if random.random() < self.tasks.caption_share:
            scene = self._scene(random, split, SceneSpec({}, dict), CAPTION, self._objects(random.random()))
            return SceneSample(scene, CAPTION, True, self._add_marker(CAPTION_PROMPT), caption(scene), drawn_by)
        kind = self._kind(split, random.random())
        answer = choice(random, kind.answers(self.world))
        spec = kind.make_spec(random, self.world, answer)
        scene = self._scene(random, split, spec, f"{kind.name} with the answer {answer}")
        seen = not (split == Split.TEST and random.random() < self.tasks.unseen_wordings)
        wording = choice(random, kind.wordings) if seen else kind.unseen_wording
        question = wording.format(**spec.slots)
        return SceneSample(scene, kind.name, seen, self._add_marker(question), answer, drawn_by)

    def picture(self, sample: SceneSample) -> "Image":
        """Render the image of a sample."""
        return draw_scene(sample.scene, self.world.size, _generator(sample.drawn_by))

    def _scene(
        self, random: np.random.Generator, split: Split, spec: SceneSpec, purpose: str, objects: int | None = None
    ) -> Scene:
        """Draw a scene of the split that satisfies the specification, by rejection sampling."""
        for _ in range(_TRIES):
            # `required` draws its objects anew in each attempt.
            scene = self.world.random_scene(random, spec.required(), objects)
            if spec.holds(scene) and self.world.split_of(scene) == split:
                return scene
        raise ValueError(
            f"{purpose}: found no such scene for the {split.name.lower()} among {_TRIES} of this world, which is too "
            f"small ({self.world}): raise world.grid, world.max_objects or world.held_out, or remove this kind"
        )

    def _objects(self, uniform: float) -> int:
        """Return the number of objects of a captioned scene, drawn with cubic shares.

        There are few scenes with one object, and therefore few in the test; with more of them a constant answer would
        often be right.
        """
        return 1 + int(np.searchsorted(self._cumulative_shares[:-1], uniform, side="right"))

    @cached_property
    def _cumulative_shares(self) -> NDArray[np.float64]:
        """Cumulative share of each number of objects."""
        shares = np.cumsum(np.arange(1.0, self.world.max_objects + 1) ** 3)
        return shares / shares[-1]

    def _kind(self, split: Split, uniform: float) -> QuestionType:
        """Return the kind for a uniform number in [0, 1)."""
        until = 0.0
        for name, share in self.shares[split].items():
            until += share
            if uniform < until:
                return KINDS[name]
        return KINDS[name]  # the last kind, if rounding makes the sum of the shares less than 1

    def _add_marker(self, text: str) -> str:
        parts = (text, MARKER) if self.tasks.image_position == "question_first" else (MARKER, text)
        return "\n".join(parts)

    def _key(self, split: Split, epoch: int, index: int, part: int) -> int:
        return int(hash_bits(self.seed, _STREAM, GENERATOR_VERSION, split, epoch, index, part))

    def _random(self, split: Split, epoch: int, index: int, part: int) -> np.random.Generator:
        return _generator(self._key(split, epoch, index, part))


def _generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))
