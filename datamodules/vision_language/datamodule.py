"""Base of the vision-language family's DataModules: chats with images in them."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.datamodule import MultimodalDataModule
from datamodules.multimodal.image_options import ImageOptions
from datamodules.multimodal.images.tiling import MARKER, Fit
from datamodules.multimodal.reports.html_report import metric_rows
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.multimodal.text.tokenizer_export import exported_tokenizer
from datamodules.vision_language.html_report import AnsweredQuestion, is_right, write_prediction_report
from engine.telemetry.sample_previews import SamplePreview

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import PreTrainedTokenizerFast

log = logging.getLogger("lockstep")

_REPORTED = 1000
"""Answers that the report shows with their images; its metrics cover all answers."""


class VisionLanguageDataModule(MultimodalDataModule):
    """Chats with images. Answers are graded one by one and previewed beside their images.

    Args:
        max_tiles: maximum number of tiles along each edge that a larger image is split into, besides a view of the
            whole image; 1 disables tiling.
        **batches: see MultimodalDataModule and LockstepDataModule.
    """

    marker = MARKER

    fit: Fit = "stretch"
    """How an image becomes a square view."""

    def __init__(self, max_tiles: int = 1, **batches: Any) -> None:
        super().__init__(**batches)
        self.image_options = ImageOptions(max_tiles)
        self.max_tiles = max_tiles

    @cached_property
    def image_layout(self) -> ImageLayout:
        """Layout of the views of an image; known from `setup` on."""
        return self.image_options.layout(self.trainer)

    def exported_tokenizer(self) -> "PreTrainedTokenizerFast":
        """Return the tokenizer for other programs, with a chat template that takes images."""
        return exported_tokenizer(self.tokenizer, self.marker)

    # -- samples of the evaluated set, as reports show them ----------------------------------------------------------

    @abstractmethod
    def images(self, sample: int) -> list["Image"]:
        """Return the images of a sample at their original size."""

    def question(self, sample: int) -> str:
        """Return the text of the user without the markers; one line per turn."""
        turns = (message["content"] for message in self._messages(sample) if message["role"] == "user")
        return "\n".join(turn.replace(self.marker, "").strip() for turn in turns)

    def right_answer(self, sample: int) -> str:
        """Return the reference for the last turn of the assistant; empty if it is unknown."""
        messages = self._messages(sample)
        return messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""

    def is_right(self, sample: int, text: str) -> bool | None:
        """Return whether an answer is right; None if the reference is unknown."""
        return is_right(self.grade(sample, text))

    def example(self, sample: int, text: str, blind: str) -> SamplePreview:
        """Return a preview of a sample of the evaluated set with the model's answers."""
        return SamplePreview(
            name=f"{sample} {self.kind(sample)}".strip(),
            question=self.question(sample),
            expected=self.right_answer(sample),
            answer=text,
            right=self.is_right(sample, text),
            picture=self.image_options.preview(sample, lambda: self.images(sample)),
            blind=blind,
        )

    def write_prediction_report(self, folder: str, answers: Sequence[tuple[int, str, str]]) -> None:
        """Write a report of a test: its first questions with their images, the references and the answers.

        Args:
            folder: folder of the run.
            answers: [(sample, answer, answer to a black image)], in the order of the samples.
        """
        assert self.trainer is not None  # the test ran under a trainer
        graded = [
            {"model": self.grade(sample, text), "blind": self.grade(sample, blind)} for sample, text, blind in answers
        ]
        questions = (
            AnsweredQuestion(
                sample, self.kind(sample), self.images(sample), self.question(sample), self.right_answer(sample),
                text, blind, grades["model"], grades["blind"],
            )
            for (sample, text, blind), grades in zip(answers[:_REPORTED], graded, strict=False)
        )  # fmt: skip
        about = {
            "run": Path(folder).name,
            "checkpoint": str(self.trainer.ckpt_path),
            "answers": f"the first {min(_REPORTED, len(answers)):,} of {len(answers):,}; the metrics cover all",
        }
        path = write_prediction_report(Path(folder), questions, metric_rows(self.outcomes, graded), about)
        log.info("report: %s", path)

    def _messages(self, sample: int) -> Sequence[Message]:
        return self.evaluated.item(0, sample).messages
