"""Provides the user's own images and chats: a DataModule for JSON, JSONL, Parquet and tar shards in any mixture."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from datamodules.images.decoding import MAX_PIXELS
from datamodules.multimodal.batch import ChatEvaluationBatch, Tiling
from datamodules.multimodal.chat_dataset import ChatQuestions
from datamodules.multimodal.image_datamodule import TileOptions
from datamodules.multimodal.images.tiling import ResizeMode
from datamodules.multimodal.predict_questions import questions_path
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_dataset import ChatImages, ChatTrainDataset, ImageProcessor
from datamodules.vision_language.datamodule import VisionLanguageDataModule
from datamodules.vision_language.evaluation_dataset import EvaluationDataset
from datamodules.vision_language.grading import OUTCOMES
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.predict_questions import PredictDataset
from datamodules.vision_language.pretrained.native_images import NativeImages
from datamodules.vision_language.row_subset import held_out_rows, training_rows
from datamodules.vision_language.shards.shard_stream import ShardRecords
from datamodules.vision_language.source_config import (
    SourceSettings,
    check_sources,
    check_streamed,
    warn_about_shared_files,
)
from datamodules.vision_language.tokenizer_texts import first_contents
from engine.base_options import Unpack
from engine.data.samplers import MicroBatchRequest
from engine.determinism.stateless_rng import global_seed
from engine.export.artifacts import DatasetCard
from engine.number_check import check_number, check_numbers

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("lockstep")


class ImageChats(VisionLanguageDataModule):
    """Chats about images in files, mixed according to their weights.

    An answer is graded by its words, or by the option that it chooses (see `grading`). In a chat with several turns the
    model answers the last turn, after the reference answers to the turns before it.

    Args:
        train: files for training.
        shuffle_window: stream tar shards for training, one after the other, shuffled in windows of this many samples;
            for data that do not fit the disk or are slow to read at random. null: random access.
        validation: files for validation; null for a share of the rows of the training files, which are then excluded
            from training.
        test: files for testing.
        validation_share: share of the rows that are held out, by the hash of a row's number. If rows share images,
            separate files are the better validation.
        validation_size: maximum number of samples of a validation, selected among all; null for all. The model
            generates their answers.
        test_size: maximum number of samples of a test; null for all.
        questions: JSONL or JSON file that `predict` answers; see datamodules/vision_language/predict_questions.py.
        system: system message of the questions; the sources have their own.
        max_pixels: maximum width x height of an image; a larger image makes its sample invalid.
        resize_mode: how an image becomes a square view: `stretch`, `pad` (padded to a square, as in LLaVA) or `crop`
            (the central square).
        tiling: how an image becomes views, and the order of their features. `tile_positions`: a learned vector for
            its position precedes the features of each view. `llava_next`, `idefics3`: as in the class of transformers
            of this name, which the model can be exported as; see docs/vision-language.md.
        root: folder that `prepare` writes to.
        **batches: see ImageDataModule, MultimodalDataModule and LockstepDataModule.
    """

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
        resize_mode: ResizeMode = "stretch",
        tiling: Tiling = "tile_positions",
        root: str = "data/vision_language",
        **batches: Unpack[TileOptions],
    ) -> None:
        super().__init__(**batches)
        for name, sources in (("train", train), ("validation", validation), ("test", test)):
            if sources is not None:
                check_sources(sources, f"data.init_args.{name}")
        if shuffle_window is not None:
            check_streamed(train, validation, shuffle_window)
        check_number("data.init_args.validation_share", validation_share, above=0, below=1)
        sizes = {"validation_size": validation_size, "test_size": test_size}
        check_numbers("data.init_args.", sizes, at_least=1)
        check_number("data.init_args.max_pixels", max_pixels, at_least=1, at_most=MAX_PIXELS)
        self.train_sources, self.validation_sources, self.test_sources = train, validation, test
        self.shuffle_window = shuffle_window
        self.validation_share, self.validation_size, self.test_size = validation_share, validation_size, test_size
        self.questions_file, self.system = questions, system
        if tiling != "tile_positions" and resize_mode != "stretch":
            raise ValueError(
                f"data.init_args.resize_mode is {resize_mode}, but the tiling {tiling} stretches the view of the whole "
                "image; set resize_mode stretch, or tiling tile_positions"
            )
        self.max_pixels, self.resize_mode, self.tiling, self.root = max_pixels, resize_mode, tiling, root

    @override
    def dataset_card(self) -> DatasetCard:
        names = ", ".join(Path(source.path).name for source in self.train_sources)
        terms = "your own chats and images: state here on what terms, and whether people can be seen in them."
        return DatasetCard(names, f"Chats about images, trained on {len(self.train_sources)} source(s).", terms)

    @override
    def prepare_data(self) -> None:
        trains = self.trainer is None or self.trainer.state.fn == "fit"
        if self.shuffle_window is not None and trains:
            for source in self.train_sources:
                source.index(self.root, local_only=True)

    @override
    def prepare(self) -> None:
        """Index tar shards, and rewrite Parquet files whose row groups are too large, in the folder `root`."""
        super().prepare()
        for sources in (self.train_sources, self.validation_sources or [], self.test_sources or []):
            for source in sources:
                for path in source.prepare(self.root):
                    log.info("%s: rewritten with smaller row groups to %s", source.path, path)

    @override
    def setup(self, stage: str) -> None:
        if stage in ("fit", "test"):
            warn_about_shared_files(self.train_sources, self.validation_sources, self.test_sources)
        if stage == "fit" and self.shuffle_window is not None:
            self.train_set = self.stream(self._stream_records)
        elif stage == "fit":
            self.train_set = self.examples(ChatTrainDataset(self._train_chats, self._processor))
            log.info("%s samples in an epoch", f"{len(self._train_chats):,}")
        if stage in ("fit", "validate"):
            self.validation_set = self._evaluation_set(self._validation_chats, self.validation_size)
        if stage == "test":
            if self.test_sources is None:
                raise ValueError("test needs data.init_args.test, a list of files")
            self.test_set = self._evaluation_set(Mixture(self.test_sources, self.root), self.test_size)
        if stage == "predict":
            path = questions_path(self.questions_file, "a JSONL file with a question on each line")
            questions = PredictDataset(path, self._processor, self.system)
            self.predict_set = self.questions(questions, in_order=True)

    @cached_property
    def _train_chats(self) -> Mixture:
        part = None if self.validation_sources is not None else partial(training_rows, share=self.validation_share)
        return Mixture(self.train_sources, self.root, global_seed(), part)

    @cached_property
    def _stream_records(self) -> ShardRecords:
        systems = [(shard, source.system) for source in self.train_sources for shard in source.shards(self.root)]
        assert self.shuffle_window is not None
        return ShardRecords(systems, self.shuffle_window, self._processor)

    @cached_property
    def _validation_chats(self) -> Mixture:
        if self.validation_sources is not None:
            return Mixture(self.validation_sources, self.root)
        each_once = [dataclasses.replace(source, weight=1.0) for source in self.train_sources]
        return Mixture(each_once, self.root, part=partial(held_out_rows, share=self.validation_share))

    @property
    def _processor(self) -> ChatImages:
        if self.processor_source is not None:
            return NativeImages(self.max_pixels)
        return ImageProcessor(self.image_layout, self.max_pixels, self.resize_mode)

    def _evaluation_set(self, chats: Mixture, size: int | None) -> ChatQuestions:
        return self.questions(EvaluationDataset(chats, self._processor, size))

    @override
    def texts(self) -> Iterator[str]:
        chats = self._train_chats if self.shuffle_window is None else None
        for content in first_contents(self.train_sources, self.root, chats):
            yield content.replace(self.marker, "")

    def _order_identity(self) -> dict[str, Any]:
        # On a resume within an epoch, the remaining samples must be the same.
        chats = {} if self.shuffle_window is not None else {"chats": self._train_chats.identity}
        return {**super()._order_identity(), **chats}

    # -- evaluation --------------------------------------------------------------------------------------------------

    @property
    def outcomes(self) -> tuple[str, ...]:  # type: ignore[override]  # known once the files are read
        """Names of the outcomes of a grade; an export opens no data and gets the outcomes of all questions."""
        return OUTCOMES if self._exports else self._evaluation_source.outcomes

    @property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]  # known once the files are read
        """Kinds of the evaluated questions."""
        return () if self._exports else self._evaluation_source.kinds

    @property
    def _exports(self) -> bool:
        return self.trainer is not None and self.trainer.state.fn is None

    @property
    def _evaluation_source(self) -> EvaluationDataset | PredictDataset:
        source = self.evaluated
        assert isinstance(source, EvaluationDataset | PredictDataset)
        return source

    @override
    def _messages(self, sample: int) -> Sequence[Message]:
        return self._evaluation_source.messages(sample)

    @override
    def kind(self, sample: int) -> str:
        return self._evaluation_source.kind(sample)

    @override
    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        return self._evaluation_source.grade(sample, text)

    @override
    def images(self, sample: int) -> list["Image"]:
        return self._evaluation_source.decode_images(sample)

    @override
    def describe(self, row: int) -> dict[str, Any]:
        source = self._evaluation_source
        assert isinstance(source, PredictDataset)  # only predict calls describe
        return source.rows[row].record

    @override
    def next_turns(self, answers: Mapping[int, Sequence[str]]) -> ChatEvaluationBatch | None:
        source = self._evaluation_source
        assert isinstance(source, PredictDataset)  # only predict continues a conversation
        rows = [row for row, row_answers in sorted(answers.items()) if source.turns(row) > len(row_answers)]
        if not rows:
            return None
        # The model's own answer may contain what no chat may, such as a special token; then the conversation ends.
        turns = ChatQuestions(source.next_turns(answers), self.sample_encoder, in_order=True, skip_bad=True)
        return turns[MicroBatchRequest(0, np.array(rows))]
