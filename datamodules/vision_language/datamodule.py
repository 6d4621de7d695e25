"""The base of the vision-language family's DataModules: chats with images in them."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.multimodal.chat import Message
from datamodules.multimodal.image_datamodule import ImageDataModule
from datamodules.multimodal.report import figures_of
from datamodules.vision_language.report import AnsweredQuestion, is_right, write_prediction_report
from engine.examples import Example

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("lockstep")

_REPORTED = 1000
"""Answers that the report shows with their pictures; its figures are of all."""


class ImageQuestions(ImageDataModule):
    """Chats with images whose answers are graded one by one, and shown beside their images."""

    # -- of the set that is evaluated: what the reports show of a sample ---------------------------------------------

    @abstractmethod
    def images(self, sample: int) -> list["Image"]:
        """Its images, before they are cut to views."""

    def question(self, sample: int) -> str:
        """What the user says, without the markers; of several turns, one a line."""
        turns = (message["content"] for message in self._messages(sample) if message["role"] == "user")
        return "\n".join(turn.replace(self.marker, "").strip() for turn in turns)

    def right_answer(self, sample: int) -> str:
        """What the assistant should say last; nothing where that is not known."""
        messages = self._messages(sample)
        return messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""

    def is_right(self, sample: int, text: str) -> bool | None:
        """Whether an answer is; None where the right one is not known."""
        return is_right(self.grade(sample, text))

    def example(self, sample: int, text: str, blind: str) -> Example:
        return Example(
            name=f"{sample} {self.kind(sample)}".strip(),
            question=self.question(sample),
            expected=self.right_answer(sample),
            answer=text,
            right=self.is_right(sample, text),
            picture=self.picture(sample, lambda: self.images(sample)),
            blind=blind,
        )

    def write_prediction_report(self, folder: str, answers: Sequence[tuple[int, str, str]]) -> None:
        """Writes the first questions of the test with their pictures, the right answers, and what was answered.

        Args:
            folder: the run's.
            answers: [(sample, answer, answer to a black picture)], in the order of the samples.
        """
        graded = [
            {"model": self.grade(sample, text), "blind": self.grade(sample, blind)} for sample, text, blind in answers
        ]
        shown = (
            AnsweredQuestion(
                sample, self.kind(sample), self.images(sample), self.question(sample), self.right_answer(sample),
                text, blind, grades["model"], grades["blind"],
            )
            for (sample, text, blind), grades in zip(answers[:_REPORTED], graded, strict=False)
        )  # fmt: skip
        about = {
            "run": Path(folder).name,
            "checkpoint": str(self.trainer.ckpt_path),
            "answers": f"the first {min(_REPORTED, len(answers)):,} of {len(answers):,}; the figures are of all",
        }
        path = write_prediction_report(Path(folder), shown, figures_of(self.outcomes, graded), about)
        log.info("report: %s", path)

    def _messages(self, sample: int) -> Sequence[Message]:
        return self.evaluated.item(0, sample).messages
