"""Provides questions about series as samples of chats."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem, ChatSource
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.temporal.batch import Series, SeriesLayout
from datamodules.temporal.series.normalization import NormalizedSeries, normalize
from datamodules.temporal.series.prompt import user_text
from datamodules.temporal.series.series_question import SeriesQuestion
from datamodules.temporal.series_marker import SeriesPosition

LAYOUT_CHANNELS = 1
"""Channels of a series for the encoder: each channel is a series of its own, of any length and rate."""


class PromptStyle(NamedTuple):
    """How a question becomes the text of a user."""

    position: SeriesPosition = "question_first"
    list_options: bool = True


class SeriesQuestionSource(Protocol):
    """Questions by index; a question is a function of (epoch, index)."""

    def __len__(self) -> int: ...

    def question(self, epoch: int, index: int) -> SeriesQuestion:
        """Return a question."""
        ...

    def name(self, epoch: int, index: int) -> str:
        """Return the index of a question with the file and row that it comes from, for messages."""
        ...


class SeriesChats(ChatSource):
    """Questions about series, with all series of a question in one chat.

    Args:
        questions: the questions.
        layout: layout of a series, of one channel.
        style: how a question becomes text.
    """

    def __init__(self, questions: SeriesQuestionSource, layout: SeriesLayout, style: PromptStyle) -> None:
        self.questions, self.layout, self.style = questions, layout, style

    @override
    def __len__(self) -> int:
        return len(self.questions)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return self.questions.name(epoch, index)

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        question = self.questions.question(epoch, index)
        normalized = [normalize(series.values) for series in question.series]
        text = user_text(question, normalized, self.style.position, self.style.list_options)
        messages = [Message(role="user", content=text)]
        if question.answer is not None:
            messages.append(Message(role="assistant", content=question.answer))
        counts = tuple(self.layout.feature_count(len(series.shares)) for series in normalized)
        return ChatItem(messages, counts, normalized)

    @override
    def collate(self, items: Sequence[Sequence[NormalizedSeries]]) -> Series:
        return collate_series(items)

    @cached_property
    def longest(self) -> int:
        """Number of steps of the longest series of the first epoch."""
        questions = (self.questions.question(0, index) for index in range(len(self)))
        return max((len(series.values) for question in questions for series in question.series), default=0)


def collate_series(items: Sequence[Sequence[NormalizedSeries]]) -> Series:
    """Batch the series of samples, padded on the right; without samples, the batch has one series of no step."""
    flat = [series for item in items for series in item]
    steps = max((len(series.shares) for series in flat), default=1)
    values = np.zeros((max(1, len(flat)), LAYOUT_CHANNELS, steps), np.float32)
    present: NDArray[np.bool_] = np.zeros(values.shape, np.bool_)
    lengths = np.zeros(len(values), np.int64)
    for row, series in enumerate(flat):
        lengths[row] = len(series.shares)
        values[row, 0, : lengths[row]] = series.shares
        present[row, 0, : lengths[row]] = series.present
    per_sample = torch.tensor([len(item) for item in items] or [1], dtype=torch.int64)
    return Series(torch.from_numpy(values), torch.from_numpy(present), torch.from_numpy(lengths), per_sample)
