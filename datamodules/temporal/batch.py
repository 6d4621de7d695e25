"""Defines batches of the temporal family: series of several channels, besides the chats."""

from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

SeriesTokens = Literal["pooled", "patch", "channel_patch"]
"""Feature vectors of a series.

`pooled`: one vector; `patch`: one per patch of all channels together; `channel_patch`: one per patch of each channel,
channel after channel.
"""


Length = TypeVar("Length", int, Tensor)


class SeriesLayout(NamedTuple):
    """Layout of a series, shared by encoder and data."""

    channels: int
    tokens: SeriesTokens
    patch: int  # steps

    def feature_count(self, length: Length) -> Length:
        """Return the number of feature vectors of a series of `length` steps."""
        patches = -(-length // self.patch)
        if self.tokens == "pooled":
            return torch.ones_like(length) if isinstance(length, Tensor) else 1
        return patches * self.channels if self.tokens == "channel_patch" else patches


class Series(NamedTuple):
    """S series, padded on the right to the longest series.

    A series without steps belongs to a chat without placeholders.
    """

    values: Tensor  # [S, K, T] float32, share of each channel's capacity; 0 where missing or padded
    present: Tensor  # [S, K, T] bool, false where a measurement is missing or padded
    lengths: Tensor  # [S] int64, steps
    per_sample: Tensor | None = None  # [B] int64, number of series of each sample; None for one each
