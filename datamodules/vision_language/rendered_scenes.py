"""Embedded data: rendered scenes, as they are needed, with questions that only the picture answers."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from datamodules.multimodal.batch import ImageLayout, Images
from datamodules.multimodal.chat import Message
from datamodules.multimodal.chat_sets import ChatItem
from datamodules.multimodal.images import Views, collate_views, views_of
from datamodules.vision_language.datamodule import ImageQuestions
from datamodules.vision_language.scenes.captions import caption
from datamodules.vision_language.scenes.grading import OUTCOMES, grade
from datamodules.vision_language.scenes.questions import KINDS
from datamodules.vision_language.scenes.samples import CAPTION, GENERATOR_VERSION, SceneSample, SceneTasks, Tasks
from datamodules.vision_language.scenes.scenes import COLOURS, SHAPES, Split, World
from engine.exported import GENERATED, DataDescription

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("lockstep")

_TEXTS = 2000
"""Samples whose texts the built-in tokenizer is made from."""


class RenderedScenes(ImageQuestions):
    """Pictures of coloured shapes on a grid, to be described and asked about.

    The answers to a question are equally often right, whatever its words: without the picture nobody does better than
    chance, which is logged and differs from kind to kind. Scenes of validation and test are never in training.

    Args:
        world: what scenes there are.
        tasks: what is asked about them.
        seed: of the samples.
        num_samples: samples of an epoch.
        fresh_samples: other samples in every epoch instead of the same ones again.
        validation_size: samples of a validation; their answers are written word by word.
        test_size: samples of a test, and of predict.
        batches: see ImageDataModule, MultimodalDataModule and LockstepDataModule.
    """

    outcomes = OUTCOMES
    kinds = (CAPTION, *KINDS)

    def __init__(
        self,
        world: World | None = None,
        tasks: Tasks | None = None,
        seed: int = 0,
        num_samples: int = 10_000,
        fresh_samples: bool = True,
        validation_size: int = 400,
        test_size: int = 2000,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self.scenes = SceneTasks(world or World(), tasks or Tasks(), seed)
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        for name, size in zip(("num_samples", "validation_size", "test_size"), self.sizes.values(), strict=True):
            if size < 1:
                raise ValueError(f"data.init_args.{name} must be at least 1, got {size}")
        self.fresh_samples = fresh_samples

    def description(self) -> DataDescription:
        train, validation, test = self.sizes.values()
        content = (
            f"Pictures of coloured shapes on a grid, with captions and questions: {train:,} samples an epoch; "
            f"{validation:,} to validate and {test:,} to test."
        )
        return DataDescription("Lockstep's rendered scenes", content, GENERATED)

    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_set = self.examples(self._samples_of(Split.TRAIN))
            if self.scenes.tasks.caption_share < 1:
                log.info("chance without the picture: %s", self._chances())
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self._samples_of(Split.VALIDATION))
        if stage == "test":
            self.test_set = self.questions(self._samples_of(Split.TEST))
        if stage == "predict":
            self.predict_set = self.questions(self._samples_of(Split.TEST), in_order=True)

    def _samples_of(self, split: Split) -> "SceneSamples":
        return SceneSamples(self.scenes, split, self.sizes[split], self.image_layout, self.fresh_samples)

    def _chances(self) -> str:
        each = (f"{kind.name} {kind.chance(self.scenes.world):.3f}" for kind in self.scenes.kinds)
        return f"{', '.join(each)}; all questions {self.scenes.chance():.3f}"

    def texts(self) -> Iterator[str]:
        # Of everything that can be said, so that every stage of a training has the same tokens, whatever it asks.
        world = World(grid=3, colours=len(COLOURS), shapes=len(SHAPES), max_objects=5)
        everything = SceneTasks(world, Tasks(unseen_wordings=0.3))
        for index in range(_TEXTS):
            sample = everything.sample(Split.TEST, 0, index)
            yield f"{sample.question.replace(self.marker, '')}\n{sample.answer}"

    def _what_is_ordered(self) -> dict[str, Any]:
        # In the middle of an epoch the samples that are left must be those that were left.
        made_by = f"{self.scenes}, fresh_samples={self.fresh_samples}, version {GENERATOR_VERSION}"
        return {**super()._what_is_ordered(), "scenes": made_by}

    # -- of the set that is evaluated --------------------------------------------------------------------------------

    def _sample(self, sample: int) -> SceneSample:
        return self.evaluated.sample(0, sample)

    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        return grade(self._sample(sample), text)

    def kind(self, sample: int) -> str:
        return self._sample(sample).kind

    def images(self, sample: int) -> list["Image"]:
        return [self.scenes.picture(self._sample(sample))]

    def question(self, sample: int) -> str:
        return self._sample(sample).question.replace(self.marker, "").strip()

    def right_answer(self, sample: int) -> str:
        return self._sample(sample).answer

    def describe(self, row: int) -> dict[str, Any]:
        shown = self._sample(row)
        return {
            "sample": row,
            "kind": shown.kind,
            "scene": caption(shown.scene),
            "question": self.question(row),
            "right_answer": shown.answer,
        }


class SceneSamples:
    """The samples of a split, as chats.

    Args:
        scenes: where they come from.
        split: training, validation or test.
        size: samples of an epoch.
        layout: what tower and projector make of a view.
        fresh: other samples in every epoch of the training.
    """

    def __init__(self, scenes: SceneTasks, split: Split, size: int, layout: ImageLayout, fresh: bool = False) -> None:
        self.scenes, self.split, self.size = scenes, split, size
        self.layout, self.fresh = layout, fresh and split == Split.TRAIN
        self._kept: dict[int, SceneSample] = {}

    def __len__(self) -> int:
        return self.size

    def name(self, index: int, epoch: int = 0) -> str:
        """The sample in messages."""
        return f"{index} ({self.split.name.lower()} scenes of seed {self.scenes.seed})"

    def sample(self, epoch: int, index: int) -> SceneSample:
        if self.split == Split.TRAIN:
            return self.scenes.sample(self.split, epoch if self.fresh else 0, index)
        if index not in self._kept:  # looked at again when it is graded, and in every validation
            self._kept[index] = self.scenes.sample(self.split, 0, index)
        return self._kept[index]

    def item(self, epoch: int, index: int) -> ChatItem:
        sample = self.sample(epoch, index)
        views = views_of(self.scenes.picture(sample), self.layout)
        messages = [Message(role="user", content=sample.question), Message(role="assistant", content=sample.answer)]
        return ChatItem(messages, (len(views.places) * self.layout.view_tokens,), views)

    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.layout)
