"""Timelines as samples of a multimodal data set."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.multimodal.chat import Message
from datamodules.multimodal.chat_sets import ChatItem
from datamodules.temporal.batch import Series, SeriesLayout
from datamodules.temporal.cache import CachedTimelines
from datamodules.temporal.curriculum import Curriculum
from datamodules.temporal.samples import Split, Synthesis, TimelineSample
from datamodules.temporal.timelines import RecordedTimelines

Timelines = Synthesis | Curriculum | CachedTimelines | RecordedTimelines
"""Where samples come from."""

Curves = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Values [T, K] and whether they were measured."""


class TimelineQuestions:
    """Questions about synthetic or recorded curves.

    Args:
        timelines: where samples come from.
        split: training, validation or test.
        size: samples of an epoch.
        layout: what the encoder makes of a series.
        fresh: other samples in every epoch.
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
        self._kept: dict[int, TimelineSample] = {}

    def __len__(self) -> int:
        return self.size

    def sample(self, epoch: int, index: int) -> TimelineSample:
        if self.split == Split.TRAIN:
            return self.timelines.sample(self.split, epoch if self.fresh else 0, index)
        if index not in self._kept:  # looked at again when it is graded, and in every validation
            self._kept[index] = self.timelines.sample(self.split, 0, index)
        return self._kept[index]

    def name(self, index: int, epoch: int = 0) -> str:
        return str(index)

    def item(self, epoch: int, index: int) -> ChatItem:
        return as_item(self.sample(epoch, index), self.layout)

    def collate(self, items: Sequence[Curves]) -> Series:
        return collate(items, self.layout)


def as_item(sample: TimelineSample, layout: SeriesLayout) -> ChatItem:
    """A sample as a chat of one question and one answer."""
    messages = [Message(role="user", content=sample.question), Message(role="assistant", content=sample.answer)]
    return ChatItem(messages, (layout.count(len(sample.values)),), (sample.values, sample.present))


def collate(items: Sequence[Curves], layout: SeriesLayout) -> Series:
    """Series side by side, padded on the right; of no items one series without a step."""
    steps = max((len(values) for values, _ in items), default=1)
    batch = max(1, len(items))
    values = np.zeros((batch, layout.channels, steps), np.float32)
    present = np.zeros(values.shape, np.bool_)
    lengths = np.zeros(batch, np.int64)
    for row, (shares, there) in enumerate(items):
        lengths[row] = len(shares)
        values[row, :, : len(shares)] = shares.T
        present[row, :, : len(there)] = there.T
    return Series(torch.from_numpy(values), torch.from_numpy(present), torch.from_numpy(lengths))
