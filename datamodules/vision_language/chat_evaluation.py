"""Evaluation of answers to the user's chats: what is asked, how an answer is graded, and the turns that follow it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from datamodules.multimodal.batch import Questions
from datamodules.multimodal.chat_dataset import ChatQuestions
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.datamodule import VisionLanguageDataModule
from datamodules.vision_language.evaluation_dataset import EvaluationDataset
from datamodules.vision_language.grading import OUTCOMES
from datamodules.vision_language.predict_questions import PredictDataset
from engine.data.samplers import MicroBatchRequest

if TYPE_CHECKING:
    from PIL.Image import Image


class ChatEvaluation(VisionLanguageDataModule):
    """Base of ImageChats, which opens the files."""

    @property
    def outcomes(self) -> tuple[str, ...]:  # type: ignore[override]  # known once the files are read
        """Names of the outcomes of a grade; for an export, which opens no data, those of all questions."""
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
        source = self.evaluated
        assert isinstance(source, PredictDataset)  # only predict calls describe
        return source.rows[row].record

    @override
    def next_turns(self, answers: Mapping[int, Sequence[str]]) -> Questions | None:
        source = self.evaluated
        assert isinstance(source, PredictDataset)  # only predict goes on with a conversation
        rows = [row for row, given in sorted(answers.items()) if source.turns(row) > len(given)]
        if not rows:
            return None
        # The model's own answer may contain what no chat may, such as a special token; then the conversation ends.
        turns = ChatQuestions(source.after(answers), self.sample_encoder, in_order=True, skip_bad=True)
        return turns[MicroBatchRequest(0, np.array(rows))]
