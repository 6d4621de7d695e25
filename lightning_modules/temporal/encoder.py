"""A series becomes feature vectors: a 1D-CNN in which padding and missing measurements never leak.

Every figure enters with what a network needs to read it off again: the value itself and its waves (Tancik et al.,
"Fourier features", NeurIPS 2020: the digits of a percentage are a near-linear function of them), its place in the range
of its channel in this series, and whether it was measured at all. Whatever is normalised is so over the channels of one
position, and the range is that of the measured steps, so a series has the same features alone and in any batch; the
original's batch norm and average over zero padding mixed them.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from datamodules.temporal.batch import Series, SeriesLayout
from lightning_modules.multimodal.flops import products

Pooling = Literal["mean", "max"]

VALUE_WAVES = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Periods in the range from 0 to the capacity; at 10 a period is a tens digit of a percentage."""

STEP_WAVES = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Periods in a step; at 0.1 a period is a tens digit of a step's number."""

_SHARP = 0.02
"""Share of the capacity from a channel's extreme within which a value counts as being one."""


def waves(x: Tensor, frequencies: tuple[float, ...]) -> Tensor:
    """[..., 2F]: sine and cosine of `x` at each frequency, in periods per unit."""
    # In bf16 an angle of 60 would be off by up to an eighth of a radian.
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    angles = torch.stack([precise * (2 * math.pi * frequency) for frequency in frequencies], dim=-1)
    return torch.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype)


def value_features(values: Tensor, present: Tensor) -> Tensor:
    """[S, K, T, VALUE_FEATURES]: what is known of each step of each channel, 0 where the measurement is missing."""
    top = values.masked_fill(~present, -math.inf).amax(-1, keepdim=True)
    low = values.masked_fill(~present, math.inf).amin(-1, keepdim=True)
    above, below = (values - low).masked_fill(~present, 0), (top - values).masked_fill(~present, 0)
    span = (top - low).clamp_min(0.01)  # of a flat channel, too
    share = torch.where(present, above / span, 0)
    place = torch.stack((values, torch.ones_like(values), above, below, share), dim=-1)
    # The extremes are narrow: an exponential makes them stand out where a difference of a hundredth counts.
    sharp = torch.stack(((-above / _SHARP).exp(), (-below / _SHARP).exp()), dim=-1)
    return torch.cat((place, sharp, waves(values, VALUE_WAVES)), dim=-1) * present.unsqueeze(-1)


VALUE_FEATURES = 7 + 2 * len(VALUE_WAVES)


class SeriesEncoder(nn.Module):
    """Series of K channels to features, as many for each as the layout says.

    Args:
        layout: channels, kind of features and patch length.
        output_size: width C of a feature.
        hidden_size: width of the convolutions.
        kernel_sizes: of the convolutions, one residual layer each; odd.
        pooling: how `pooled` makes one feature of all steps.
        dropout: share of activations dropped in training, after each layer.
    """

    def __init__(
        self,
        layout: SeriesLayout,
        output_size: int = 128,
        hidden_size: int = 32,
        kernel_sizes: tuple[int, ...] = (3, 5, 7),
        pooling: Pooling = "mean",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if any(size % 2 == 0 for size in kernel_sizes):
            raise ValueError(f"kernel_sizes must be odd, so that a layer keeps the steps; got {list(kernel_sizes)}")
        self.layout, self.pooling, self.output_size = layout, pooling, output_size
        self.apart = layout.tokens == "channel_patch"
        width = VALUE_FEATURES * (1 if self.apart else layout.channels)
        self.enter = nn.Linear(width, hidden_size)
        self.layers = nn.ModuleList(MaskedConvolution(hidden_size, size, dropout) for size in kernel_sizes)
        steps = 1 if layout.tokens == "pooled" else layout.patch
        self.read_out = nn.Linear(steps * hidden_size, output_size)
        self.time = nn.Linear(2 * len(STEP_WAVES), output_size if steps > 1 else hidden_size, bias=False)
        # Place and channel are as strong as the values: weaker ones are confused for hundreds of steps.
        nn.init.normal_(self.time.weight, std=len(STEP_WAVES) ** -0.5)
        if layout.tokens != "pooled":
            self.raw = nn.Linear(steps * width, output_size, bias=False)  # past the convolutions, unchanged
        if self.apart:
            self.channel = nn.Embedding(layout.channels, output_size)

    def forward(self, series: Series) -> Tensor:
        """[F, C], series after series; of a series channel after channel (`channel_patch`), patch after patch."""
        steps = torch.arange(series.values.shape[2], device=series.values.device)
        inside = (steps < series.lengths[:, None]).unsqueeze(-1)  # [S, T, 1]
        inputs = value_features(series.values, series.present)
        if self.apart:
            inputs, inside = inputs.flatten(0, 1), inside.repeat_interleave(self.layout.channels, dim=0)
        else:
            inputs = inputs.transpose(1, 2).flatten(2)
        states = self.enter(inputs) * inside  # [N, T, H]
        if self.layout.tokens == "pooled":
            states = states + self._moment(steps) * inside
        for layer in self.layers:
            states = layer(states, inside)
        if self.layout.tokens == "pooled":
            return self.read_out(self._pool(states, inside))[series.lengths > 0]
        patches = self.read_out(self._cut(states)) + self.raw(self._cut(inputs))  # [N, P, C]
        number = torch.arange(patches.shape[1], device=patches.device)
        patches = patches + self._moment(number * self.layout.patch)
        there = number < -(-series.lengths[:, None] // self.layout.patch)  # [S, P]
        if self.apart:
            patches = patches.unflatten(0, (-1, self.layout.channels)) + self.channel.weight[:, None]
            there = there[:, None].expand(patches.shape[:3])
        return patches[there]

    def flops(self, series: Series) -> int:
        """What it takes when it trains, forward and backward; see multimodal/flops.py."""
        samples, channels, steps = series.values.shape
        rows, patches = samples * (channels if self.apart else 1), -(-steps // self.layout.patch)
        total = rows * steps * (products(self.enter, back=False) + products(self.layers, back=True))
        if self.layout.tokens == "pooled":
            return total + rows * products(self.read_out, back=True) + steps * products(self.time, back=False)
        total += rows * patches * (products(self.read_out, back=True) + products(self.raw, back=False))
        return total + patches * products(self.time, back=False)

    def _moment(self, steps: Tensor) -> Tensor:
        """[N] numbers of steps to what is added there, [N, H] or [N, C]."""
        format = self.time.weight.dtype  # not the features', which autocast narrows: bf16 has no whole number above 256
        return self.time(waves(steps.to(torch.promote_types(format, torch.float32)), STEP_WAVES).to(format))

    def _cut(self, states: Tensor) -> Tensor:
        """[N, T, H] to [N, P, patch H]."""
        missing = -states.shape[1] % self.layout.patch
        return nn.functional.pad(states, (0, 0, 0, missing)).unflatten(1, (-1, self.layout.patch)).flatten(2)

    def _pool(self, states: Tensor, inside: Tensor) -> Tensor:
        if self.pooling == "max":
            return states.masked_fill(~inside, -math.inf).amax(1).clamp_min(torch.finfo(states.dtype).min)
        return states.sum(1) / inside.sum(1).clamp_min(1)


class MaskedConvolution(nn.Module):
    """A residual layer: norm over the channels of each position, convolution, ReLU; zero outside of the series."""

    def __init__(self, size: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.convolution = nn.Conv1d(size, size, kernel_size, padding=kernel_size // 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, inside: Tensor) -> Tensor:
        """[N, T, H], zero outside, to the same (`inside` is [N, T, 1])."""
        convolved = self.convolution((self.norm(states) * inside).transpose(1, 2)).transpose(1, 2)
        return states + self.dropout(torch.relu(convolved)) * inside
