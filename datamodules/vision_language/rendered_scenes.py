"""Provides rendered scenes: a DataModule of images generated on demand, with questions that only the image answers."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from datamodules.multimodal.batch import ImageLayout, Images
from datamodules.multimodal.chat_dataset import ChatItem, ChatSource
from datamodules.multimodal.image_datamodule import TileOptions
from datamodules.multimodal.images.tiling import Views, collate_views, make_views
from datamodules.multimodal.recorded_settings import recorded_fields, recorded_text
from datamodules.multimodal.synthetic_split import Split, generated_dataset_card
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.datamodule import VisionLanguageDataModule
from datamodules.vision_language.scenes.captions import caption
from datamodules.vision_language.scenes.grading import OUTCOMES, grade
from datamodules.vision_language.scenes.question_types import KINDS
from datamodules.vision_language.scenes.scene import COLOURS, SHAPES, World
from datamodules.vision_language.scenes.tasks import CAPTION, GENERATOR_VERSION, SceneSample, SceneTasks, Tasks
from engine.base_options import Unpack
from engine.export.artifacts import DatasetCard
from engine.number_check import check_numbers

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("lockstep")

_TEXTS = 2000
"""Samples whose texts the built-in tokenizer is trained on."""


class RenderedScenes(VisionLanguageDataModule):
    """Images of colored shapes on a grid, with captions and questions.

    The answers to a question are equally likely, whatever its wording: without the image no guess is better than
    chance, which is logged and differs between kinds. Scenes of validation and test never occur in training.

    Args:
        world: set of possible scenes.
        tasks: captions and questions.
        seed: seed of the samples.
        num_samples: samples per epoch.
        fresh_samples: draw new samples in every epoch instead of repeating the same samples.
        validation_size: samples of a validation; the model generates their answers.
        test_size: samples of a test, and of predict.
        **batches: see ImageDataModule, MultimodalDataModule and LockstepDataModule.
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
        **batches: Unpack[TileOptions],
    ) -> None:
        super().__init__(**batches)
        self.scenes = SceneTasks(world or World(), tasks or Tasks(), seed)
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        sizes = {"num_samples": num_samples, "validation_size": validation_size, "test_size": test_size}
        check_numbers("data.init_args.", sizes, at_least=1)
        self.fresh_samples = fresh_samples

    @override
    def dataset_card(self) -> DatasetCard:
        content = "Pictures of colored shapes on a grid, with captions and questions"
        return generated_dataset_card("Lockstep's rendered scenes", content, self.sizes)

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_set = self.examples(self._dataset(Split.TRAIN))
            if self.scenes.tasks.caption_share < 1:
                log.info("chance without the picture: %s", self._chances())
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self._dataset(Split.VALIDATION))
        if stage == "test":
            self.test_set = self.questions(self._dataset(Split.TEST))
        if stage == "predict":
            self.predict_set = self.questions(self._dataset(Split.TEST), in_order=True)

    def _dataset(self, split: Split) -> "SceneSamples":
        return SceneSamples(self.scenes, split, self.sizes[split], self.image_layout, self.fresh_samples)

    def _chances(self) -> str:
        each = (f"{kind.name} {kind.chance(self.scenes.world):.3f}" for kind in self.scenes.kinds)
        return f"{', '.join(each)}; all questions {self.scenes.chance():.3f}"

    @override
    def texts(self) -> Iterator[str]:
        # All words of the family, so that the stages of a training have the same tokens, whatever their tasks.
        world = World(grid=3, colours=len(COLOURS), shapes=len(SHAPES), max_objects=5)
        everything = SceneTasks(world, Tasks(unseen_wordings=0.3))
        for index in range(_TEXTS):
            sample = everything.sample(Split.TEST, 0, index)
            yield f"{sample.question.replace(self.marker, '')}\n{sample.answer}"

    def _order_identity(self) -> dict[str, Any]:
        # On a resume within an epoch, the remaining samples must be the same.
        return {**super()._order_identity(), "scenes": self.sample_identity()}

    def sample_identity(self) -> str:
        """Return everything that the samples depend on, as text, which checkpoints compare."""
        world = recorded_fields(self.scenes.world, {})
        tasks = recorded_fields(self.scenes.tasks, {"task_mix": "question_mix"})
        if not tasks["training_mix"]:  # as before this option, so that older runs resume
            del tasks["training_mix"]
        settings = f"world={recorded_text('World', world)}, tasks={recorded_text('Tasks', tasks)}"
        scenes = f"SceneTasks({settings}, seed={self.scenes.seed})"
        return f"{scenes}, fresh_samples={self.fresh_samples}, version {GENERATOR_VERSION}"

    # -- samples of the evaluated set --------------------------------------------------------------------------------

    def _sample(self, sample: int) -> SceneSample:
        source = self.evaluated
        assert isinstance(source, SceneSamples)
        return source.sample(0, sample)

    @override
    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        return grade(self._sample(sample), text)

    @override
    def kind(self, sample: int) -> str:
        return self._sample(sample).kind

    @override
    def images(self, sample: int) -> list["Image"]:
        return [self.scenes.picture(self._sample(sample))]

    @override
    def question(self, sample: int) -> str:
        return self._sample(sample).question.replace(self.marker, "").strip()

    @override
    def right_answer(self, sample: int) -> str:
        return self._sample(sample).answer

    @override
    def describe(self, row: int) -> dict[str, Any]:
        sample = self._sample(row)
        return {
            "sample": row,
            "kind": sample.kind,
            "scene": caption(sample.scene),
            "question": self.question(row),
            "right_answer": sample.answer,
        }


class SceneSamples(ChatSource):
    """Samples of a split, as chats.

    Args:
        scenes: generator of the samples.
        split: training, validation or test.
        size: samples per epoch.
        layout: layout of a view.
        fresh: draw new samples in every epoch of the training.
    """

    def __init__(self, scenes: SceneTasks, split: Split, size: int, layout: ImageLayout, fresh: bool = False) -> None:
        self.scenes, self.split, self.size = scenes, split, size
        self.layout, self.fresh = layout, fresh and split == Split.TRAIN
        self._cached: dict[int, SceneSample] = {}

    @override
    def __len__(self) -> int:
        return self.size

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.split.name.lower()} scenes of seed {self.scenes.seed})"

    def sample(self, epoch: int, index: int) -> SceneSample:
        """Return a scene with its question or caption."""
        if self.split == Split.TRAIN:
            return self.scenes.sample(self.split, epoch if self.fresh else 0, index)
        if index not in self._cached:  # used again when the answer is graded, and in every validation
            self._cached[index] = self.scenes.sample(self.split, 0, index)
        return self._cached[index]

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        sample = self.sample(epoch, index)
        views = make_views(self.scenes.picture(sample), self.layout)
        messages = [Message(role="user", content=sample.question), Message(role="assistant", content=sample.answer)]
        return ChatItem(messages, (len(views.tile_positions) * self.layout.view_tokens,), views)

    @override
    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.layout)
