"""Provides timelines with questions as samples of chats."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem, ChatSource
from datamodules.multimodal.synthetic_split import Split
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.temporal.batch import Series, SeriesLayout
from datamodules.temporal.timelines.recorded.dataset import RecordedTimelines
from datamodules.temporal.timelines.sample_cache import CachedTimelines
from datamodules.temporal.timelines.synthetic.curriculum import Curriculum
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines

Timelines = SyntheticTimelines | Curriculum | CachedTimelines | RecordedTimelines
"""Sources of samples."""

Curves = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Values [T, K], and whether they were measured."""


class TimelineQuestions(ChatSource):
    """Questions about synthetic or recorded curves.

    Args:
        timelines: source of the samples.
        split: training, validation or test.
        size: samples per epoch.
        layout: layout of a series.
        fresh: draw new samples in every epoch.
    """

    def __init__(
        self,
        timelines: Timelines,
        split: Split,
        size: int,
        layout: SeriesLayout,
        fresh: bool = False,
    ) -> None:
        self.timelines, self.split, self.size = timelines, split, size
        self.layout, self.fresh = layout, fresh
        self._cached: dict[int, TimelineSample] = {}

    @override
    def __len__(self) -> int:
        return self.size

    def sample(self, epoch: int, index: int) -> TimelineSample:
        """Return a timeline with its question and reference answer."""
        if self.split == Split.TRAIN:
            # Training samples are not cached: with fresh samples, none occurs twice.
            return self.timelines.sample(self.split, epoch if self.fresh else 0, index)
        if index not in self._cached:  # used again when the answer is graded, and in every validation
            self._cached[index] = self.timelines.sample(self.split, 0, index)
        return self._cached[index]

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return str(index)

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        return as_item(self.sample(epoch, index), self.layout)

    @override
    def collate(self, items: Sequence[Curves]) -> Series:
        return collate_timelines(items, self.layout)


def as_item(sample: TimelineSample, layout: SeriesLayout) -> ChatItem:
    """Convert a sample to a chat with one question and one answer."""
    messages = [Message(role="user", content=sample.question), Message(role="assistant", content=sample.answer)]
    return ChatItem(messages, (layout.feature_count(len(sample.values)),), (sample.values, sample.present))


def collate_timelines(items: Sequence[Curves], layout: SeriesLayout) -> Series:
    """Batch series, padded on the right; without items, the batch has one series of one step."""
    steps = max((len(values) for values, _ in items), default=1)
    batch = max(1, len(items))
    values = np.zeros((batch, layout.channels, steps), np.float32)
    present = np.zeros(values.shape, np.bool_)
    lengths = np.zeros(batch, np.int64)
    for row, (shares, measured) in enumerate(items):
        lengths[row] = len(shares)
        values[row, :, : len(shares)] = shares.T
        present[row, :, : len(measured)] = measured.T
    return Series(torch.from_numpy(values), torch.from_numpy(present), torch.from_numpy(lengths))
