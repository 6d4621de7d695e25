"""What a temporal batch holds beside its chats: series of several channels."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor


SeriesTokens = Literal["pooled", "patch", "channel_patch"]
"""How many feature vectors a series becomes: one (as in the original), one for each patch of all channels together, or
one for each patch of each channel, channel after channel."""


class SeriesLayout(NamedTuple):
    """What encoder and data must agree on."""

    channels: int
    tokens: SeriesTokens
    patch: int  # steps

    def count(self, length: int | Tensor) -> int | Tensor:
        """Feature vectors of a series of `length` steps."""
        patches = -(-length // self.patch)
        if self.tokens == "pooled":
            return torch.ones_like(length) if isinstance(length, Tensor) else 1
        return patches * self.channels if self.tokens == "channel_patch" else patches


class Series(NamedTuple):
    """S series, padded on the right to the longest; one without steps belongs to a chat without placeholders."""

    values: Tensor  # [S, K, T] float32, share of each channel's capacity, 0 where missing or padded
    present: Tensor  # [S, K, T] bool, false where a measurement is missing, and in the padding
    lengths: Tensor  # [S] int64, steps
