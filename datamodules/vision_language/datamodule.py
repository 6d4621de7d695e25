"""Provides the base of the vision-language DataModules: chats with images in them."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem, SampleEncoder
from datamodules.multimodal.image_datamodule import ImageDataModule
from datamodules.multimodal.reports.html_report import metric_rows
from datamodules.multimodal.text.chat_encoder import ChatEncoder, Message
from datamodules.vision_language.chat_file import last_answer
from datamodules.vision_language.html_report import AnsweredQuestion, is_right, write_test_report
from datamodules.vision_language.pretrained.encoded_chat import EncodedChat
from datamodules.vision_language.pretrained.processor import ModelProcessor, ProcessorModule, ProcessorSource
from datamodules.vision_language.pretrained.sample_encoder import ProcessedSampleEncoder
from engine.telemetry.sample_previews import SamplePreview

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("lockstep")

_BLACK_SIZE = (56, 56)
"""Width and height of a black image, in pixels: a few tokens of any model."""

_REPORTED = 1000
"""Answers that the report shows with their images; its metrics cover all answers."""


class VisionLanguageDataModule(ImageDataModule):
    """Chats with images. Answers are graded one by one and previewed beside their images."""

    # -- chats that the processor of a pretrained model encodes --------------------------------------------------------

    @property
    def processor_source(self) -> ProcessorSource | None:
        """Processor that the trainer's module asks for; None if its parts define how images become views."""
        if self.trainer is None:  # scripts set the data up without a trainer
            return None
        module = self.trainer.lightning_module
        return module.processor_source if isinstance(module, ProcessorModule) else None

    @cached_property
    def model_processor(self) -> ModelProcessor:
        """Processor of the pretrained model that the trainer's module fine-tunes."""
        source = self.processor_source
        assert source is not None  # see `processor_source`
        self._refuse_unused_settings(source.path)
        return ModelProcessor(source.path, source.folder, source.image_settings)

    @property
    @override
    def sample_encoder(self) -> ChatEncoder | SampleEncoder:
        return self.chat_encoder if self.processor_source is None else ProcessedSampleEncoder(self.model_processor)

    @cached_property
    def black_image(self) -> EncodedChat:
        """A prompt with a black image, for micro-batches without an image."""
        from PIL import Image

        # Through the processor, so that the image has the shape and the tokens that the model expects.
        item = ChatItem([Message(role="user", content=self.marker)], (), [Image.new("RGB", _BLACK_SIZE)])
        return EncodedChat(*ProcessedSampleEncoder(self.model_processor).prompt(item, "a black image"))

    @property
    @override
    def packed_tokens(self) -> int | None:
        source = self.processor_source
        if self.packed_length is None or source is None or source.unpacked is None:
            return self.packed_length
        log.warning(
            "data.init_args.packed_length: chats of %s are not packed, because %s; each has a row of its own, in %d "
            "group(s) of similar length (data.init_args.length_groups)", source.path, source.unpacked,
            self.length_groups,
        )  # fmt: skip
        return None

    def _refuse_unused_settings(self, path: str) -> None:
        """Raise ValueError for settings in whose place the model's processor decides."""
        defaults = {"tokenizer": None, "max_tiles": 1, "tiling": "tile_positions", "resize_mode": "stretch"}
        for key, default in defaults.items():
            value = self.tokenizer_source if key == "tokenizer" else getattr(self, key)
            if value != default:
                raise ValueError(
                    f"data.init_args.{key} is {value}, but the processor of {path} decides it; remove the key "
                    "(model.init_args.image_processor changes settings of the image processor)"
                )

    # -- samples of the evaluated set, as reports show them ----------------------------------------------------------

    @abstractmethod
    def images(self, sample: int) -> list["Image"]:
        """Return the images of a sample at their original size."""

    def question(self, sample: int) -> str:
        """Return the text of the user without the markers; one line per turn."""
        turns = (message["content"] for message in self._messages(sample) if message["role"] == "user")
        return "\n".join(turn.replace(self.marker, "").strip() for turn in turns)

    def question_text(self, sample: int) -> str:
        """Return what a sample asks, as people read it."""
        return self.question(sample)

    def right_answer(self, sample: int) -> str:
        """Return the reference for the last turn of the assistant; empty if it is unknown."""
        return last_answer(self._messages(sample))

    def is_right(self, sample: int, text: str) -> bool | None:
        """Return whether an answer is right; None if the reference is unknown."""
        return is_right(self.grade(sample, text))

    def sample_preview(self, sample: int, text: str, blind: str) -> SamplePreview:
        """Return a preview of a sample of the evaluated set with the model's answers."""
        return SamplePreview(
            name=f"{sample} {self.kind(sample)}".strip(),
            question=self.question(sample),
            expected=self.right_answer(sample),
            answer=text,
            right=self.is_right(sample, text),
            picture=self.preview_images(sample, lambda: self.images(sample)),
            blind=blind,
        )

    def write_test_report(self, folder: str, answers: Sequence[tuple[int, str, str]]) -> None:
        """Write a report of a test: its first questions with their images, the references and the answers.

        Args:
            folder: folder of the run.
            answers: [(sample, answer, answer to a black image)], in the order of the samples.
        """
        assert self.trainer is not None  # the test ran under a trainer
        graded = [
            {"model": self.grade(sample, text), "blind": self.grade(sample, blind)} for sample, text, blind in answers
        ]
        # A generator, so that the images of one sample at a time are in memory.
        questions = (
            AnsweredQuestion(
                sample=sample,
                kind=self.kind(sample),
                pictures=self.images(sample),
                question=self.question(sample),
                truth=self.right_answer(sample),
                answer=text,
                blind=blind,
                grade=grades["model"],
                blind_grade=grades["blind"],
            )
            for (sample, text, blind), grades in zip(answers[:_REPORTED], graded, strict=False)
        )
        about = {
            "run": Path(folder).name,
            "checkpoint": str(self.trainer.ckpt_path),
            "answers": f"the first {min(_REPORTED, len(answers)):,} of {len(answers):,}; the metrics cover all",
        }
        path = write_test_report(Path(folder), questions, metric_rows(self.outcomes, graded), about)
        log.info("report: %s", path)

    def _messages(self, sample: int) -> Sequence[Message]:
        return self.evaluated.item(0, sample).messages
