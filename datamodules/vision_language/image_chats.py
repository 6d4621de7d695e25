"""The user's own images and chats about them: LLaVA's JSON, JSONL, Parquet, tar shards, in any mixture."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datamodules.multimodal.chat import Message
from datamodules.multimodal.image_decoding import MAX_PIXELS
from datamodules.multimodal.images import Fit
from datamodules.multimodal.unusable import UnusableSample
from datamodules.vision_language.asked_images import AskedImages
from datamodules.vision_language.datamodule import ImageQuestions
from datamodules.vision_language.grading import OUTCOMES, grade
from datamodules.vision_language.image_chat import ChatFile, ImageChat
from datamodules.vision_language.image_chat_samples import Cutting, EvaluatedChats, ImageChatSamples
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.part import Part, held_out
from datamodules.vision_language.shards.records import ShardRecords
from datamodules.vision_language.shards.tar_chats import read_sample
from datamodules.vision_language.source_settings import SourceSettings, check_sources, check_streamed, shared_files
from engine.exported import DataDescription
from engine.randomness import global_seed

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("lockstep")

_TEXTS = 1000
"""Rows of each source that the built-in tokenizer is made from."""


class ImageChats(ImageQuestions):
    """Chats about images in files, mixed as their weights say.

    An answer is graded by its words (see `grading`); of a chat with several turns the last one is asked for, after
    the right answers to those before it.

    Args:
        train: files to train on.
        shuffle_window: train on tar shards as a stream: one after the other, shuffled in windows of so many samples; for data that do not fit the disk, or are slow to read at random. null: at random.
        validation: files to validate with; null for a share of the training files' rows, which are then not trained.
        test: files to test with.
        validation_share: share of the rows that are held out, by the hash of a row's number; where rows share their images, files of their own are the better validation.
        validation_size: samples of a validation at most, chosen among all; null for all. Their answers are written word by word.
        test_size: samples of a test at most; null for all.
        questions: JSONL file that `predict` answers; see datamodules/vision_language/asked_images.py.
        system: system message of the questions; the sources have their own.
        max_pixels: width x height of the largest image that is decoded; a larger one is unusable.
        fit: how an image becomes a square view: `stretch`, `pad` (a square around it, as in LLaVA) or `crop` (the square in its middle).
        root: folder for what `prepare` writes.
        batches: see ImageDataModule, MultimodalDataModule and LockstepDataModule.
    """  # noqa: E501

    outcomes = OUTCOMES

    def __init__(
        self,
        train: list[SourceSettings],
        shuffle_window: int | None = None,
        validation: list[SourceSettings] | None = None,
        test: list[SourceSettings] | None = None,
        validation_share: float = 0.01,
        validation_size: int | None = 1000,
        test_size: int | None = None,
        questions: str | None = None,
        system: str | None = None,
        max_pixels: int = 64_000_000,
        fit: Fit = "stretch",
        root: str = "data/vision_language",
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        for name, sources in (("train", train), ("validation", validation), ("test", test)):
            if sources is not None:
                check_sources(sources, f"data.init_args.{name}")
        if shuffle_window is not None:
            if shuffle_window < 1:
                raise ValueError(f"data.init_args.shuffle_window must be at least 1, got {shuffle_window}")
            check_streamed(train, "data.init_args.train")
            if validation is None:
                raise ValueError("data.init_args.shuffle_window: a stream needs data.init_args.validation of its own")
        if not 0 < validation_share < 1:
            raise ValueError(f"data.init_args.validation_share must lie between 0 and 1, got {validation_share}")
        for name, size in (("validation_size", validation_size), ("test_size", test_size)):
            if size is not None and size < 1:
                raise ValueError(f"data.init_args.{name} must be at least 1, or null for all; got {size}")
        if not 1 <= max_pixels <= MAX_PIXELS:
            raise ValueError(f"data.init_args.max_pixels must be 1 to {MAX_PIXELS:,}, got {max_pixels:,}")
        self.train_sources, self.validation_sources, self.test_sources = train, validation, test
        self.shuffle_window = shuffle_window
        self.validation_share, self.validation_size, self.test_size = validation_share, validation_size, test_size
        self.questions_file, self.system = questions, system
        self.max_pixels, self.fit, self.root = max_pixels, fit, root

    def description(self) -> DataDescription:
        names = ", ".join(Path(source.path).name for source in self.train_sources)
        terms = "your own chats and images: state here on what terms, and whether people can be seen in them."
        return DataDescription(names, f"Chats about images, trained on {len(self.train_sources)} source(s).", terms)

    def prepare_data(self) -> None:
        trains = self.trainer is None or self.trainer.state.fn == "fit"
        if self.shuffle_window is not None and trains:
            for source in self.train_sources:
                source.index(self.root, files_alone=True)

    def prepare(self) -> None:
        """Writes into `root` what tar shards hold, and what Parquet files with too large row groups are read from."""
        super().prepare()
        for sources in (self.train_sources, self.validation_sources or [], self.test_sources or []):
            for source in sources:
                for path in source.prepare(self.root):
                    log.info("%s: written in smaller row groups to %s", source.path, path)

    def setup(self, stage: str) -> None:
        if stage in ("fit", "test"):
            self._warn_of_shared_files()
        if stage == "fit" and self.shuffle_window is not None:
            self.train_set = self.stream(self._streamed)
        elif stage == "fit":
            self.train_set = self.examples(ImageChatSamples(self._training, self._cutting))
            log.info("%s samples in an epoch", f"{len(self._training):,}")
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self._evaluated_with(self._validation, self.validation_size))
        if stage == "test":
            if self.test_sources is None:
                raise ValueError("test needs data.init_args.test, a list of files")
            self.test_set = self.questions(self._evaluated_with(Mixture(self.test_sources, self.root), self.test_size))
        if stage == "predict":
            if self.questions_file is None:
                raise ValueError("predict needs data.init_args.questions, a JSONL file with a question on each line")
            asked = AskedImages(Path(self.questions_file), self._cutting, self.system)
            self.predict_set = self.questions(asked, in_order=True)

    def _warn_of_shared_files(self) -> None:
        for name, sources in (("validation", self.validation_sources), ("test", self.test_sources)):
            shared = shared_files(self.train_sources, sources or [])
            if shared:
                more = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
                log.warning(
                    "%s%s: in data.init_args.train and in data.init_args.%s: what is trained on is evaluated, so its "
                    "scores say nothing of other data", ", ".join(shared[:3]), more, name,
                )  # fmt: skip

    @cached_property
    def _training(self) -> Mixture:
        part = self._part if self.validation_sources is None else (lambda file: file)
        return Mixture(self.train_sources, self.root, global_seed(), part)

    @cached_property
    def _streamed(self) -> ShardRecords:
        systems = [(shard, source.system) for source in self.train_sources for shard in source.shards(self.root)]
        assert self.shuffle_window is not None
        return ShardRecords(systems, self.shuffle_window, self._cutting)

    @cached_property
    def _validation(self) -> Mixture:
        if self.validation_sources is not None:
            return Mixture(self.validation_sources, self.root)
        each_once = [dataclasses.replace(source, weight=1.0) for source in self.train_sources]
        return Mixture(each_once, self.root, part=partial(self._part, held=True))

    def _part(self, file: ChatFile, held: bool = False) -> Part:
        """What is held out of a training file, or the rest."""
        return Part(file, np.flatnonzero(held_out(file, self.validation_share) == held))

    @property
    def _cutting(self) -> Cutting:
        return Cutting(self.image_layout, self.max_pixels, self.fit)

    def _evaluated_with(self, chats: Mixture, size: int | None) -> EvaluatedChats:
        return EvaluatedChats(chats, self._cutting, size)

    def texts(self) -> Iterator[str]:
        for read in self._first():
            try:
                messages = read().messages
            except UnusableSample:
                continue  # named when it is drawn
            yield from (message["content"].replace(self.marker, "") for message in messages)

    def _first(self) -> Iterator[Callable[[], ImageChat]]:
        """The first samples of each source to train on, to be read."""
        if self.shuffle_window is None:
            for file in self._training.files:
                yield from (partial(file.read, row) for row in range(min(_TEXTS, len(file))))
        else:
            for source in self.train_sources:
                samples = chain.from_iterable(shard.places() for shard in source.shards(self.root))
                yield from (partial(read_sample, sample) for sample in islice(samples, _TEXTS))

    def _what_is_ordered(self) -> dict[str, Any]:
        # In the middle of an epoch the samples that are left must be those that were left.
        chats = {} if self.shuffle_window is not None else {"chats": self._training.identity}
        return {**super()._what_is_ordered(), **chats}

    # -- of the set that is evaluated --------------------------------------------------------------------------------

    def _messages(self, sample: int) -> Sequence[Message]:
        return self.evaluated.messages(sample)

    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        right = self.right_answer(sample)
        return grade(right, text) if right else {}

    def images(self, sample: int) -> list["Image"]:
        return self.evaluated.pictures(sample)

    def describe(self, row: int) -> dict[str, Any]:
        return self.evaluated.rows[row].record
