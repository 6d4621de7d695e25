"""Encoders of time series at their smallest, and series for them."""

from typing import get_args

import torch

from datamodules.temporal.batch import Series, SeriesLayout, SeriesTokens
from lightning_modules.temporal.series_encoder import SeriesEncoder

CHANNELS = 3
KINDS = get_args(SeriesTokens)


def series(lengths: list[int], seed: int = 0, room: int = 0) -> Series:
    """Random series; what lies outside of one, or is missing, is garbage that must not count."""
    draw = torch.Generator().manual_seed(seed)
    longest = max(lengths) + room
    values = torch.rand(len(lengths), CHANNELS, longest, generator=draw)
    inside = torch.arange(longest) < torch.tensor(lengths)[:, None]
    present = (torch.rand(values.shape, generator=draw) < 0.8) & inside[:, None]
    return Series(values, present, torch.tensor(lengths))


def encoder(tokens: SeriesTokens, **settings) -> SeriesEncoder:
    torch.manual_seed(0)
    return SeriesEncoder(SeriesLayout(CHANNELS, tokens, 4), output_size=10, hidden_size=8, **settings).eval()
