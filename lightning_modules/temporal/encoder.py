"""A series becomes feature vectors: a 1D-CNN in which padding and missing measurements never leak.

Every figure enters with what a network needs to read it off again: the value itself, sine and cosine of its octaves
(Tancik et al., "Fourier features", NeurIPS 2020), whether it was measured at all, and when. Normalisation is over the
channels of one position, so a series has the same features alone and in any batch; the seed's batch norm and average
over zero padding mixed them.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from datamodules.temporal.batch import Series, SeriesLayout

Pooling = Literal["mean", "max"]

_STEPS = 100
"""Steps after which the feature that tells the time is 1."""


class SeriesEncoder(nn.Module):
    """Series of K channels to features, as many for each as the layout says.

    Args:
        layout: channels, kind of features and patch length.
        output_size: width C of a feature.
        hidden_size: width of the convolutions.
        kernel_sizes: of the convolutions, one layer each; odd.
        octaves: sines and cosines of pi x, 2 pi x, 4 pi x, ... that stand beside a value x.
        pooling: how `pooled` makes one feature of all steps.
        dropout: share of activations dropped in training, after each layer.
    """

    def __init__(
        self,
        layout: SeriesLayout,
        output_size: int = 128,
        hidden_size: int = 64,
        kernel_sizes: tuple[int, ...] = (3, 5, 7),
        octaves: int = 4,
        pooling: Pooling = "mean",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if any(size % 2 == 0 for size in kernel_sizes):
            raise ValueError(f"kernel_sizes must be odd, so that a layer keeps the steps; got {list(kernel_sizes)}")
        self.layout, self.octaves, self.pooling, self.output_size = layout, octaves, pooling, output_size
        self.apart = layout.tokens == "channel_patch"
        width = (2 + 2 * octaves) * (1 if self.apart else layout.channels) + 1
        sizes = [width] + [hidden_size] * len(kernel_sizes)
        self.layers = nn.ModuleList(
            MaskedConvolution(fan_in, fan_out, kernel, dropout)
            for fan_in, fan_out, kernel in zip(sizes, sizes[1:], kernel_sizes, strict=False)
        )
        steps = 1 if layout.tokens == "pooled" else layout.patch
        self.read_out = nn.Linear(steps * sizes[-1], output_size)
        if layout.tokens != "pooled":
            self.raw = nn.Linear(steps * width, output_size, bias=False)  # past the convolutions, unchanged
        if self.apart:
            # As strong as the features themselves: with small ones the channels are confused for hundreds of steps.
            self.channel = nn.Embedding(layout.channels, output_size)

    def forward(self, series: Series) -> Tensor:
        """[F, C], series after series; of a series channel after channel (`channel_patch`), patch after patch."""
        inputs, inside = self._inputs(series)  # [N, T, width], [N, T, 1]
        states = inputs
        for layer in self.layers:
            states = layer(states, inside)
        if self.layout.tokens == "pooled":
            return self.read_out(self._pool(states, inside))[series.lengths > 0]
        patches = self.read_out(self._cut(states)) + self.raw(self._cut(inputs))  # [N, P, C]
        number = torch.arange(patches.shape[1], device=patches.device)
        patches = patches + sinusoids(number, self.output_size).to(patches.dtype)
        there = number < -(-series.lengths[:, None] // self.layout.patch)  # [S, P]
        if self.apart:
            patches = patches.unflatten(0, (-1, self.layout.channels)) + self.channel.weight[:, None]
            there = there[:, None].expand(patches.shape[:3])
        return patches[there]

    def _inputs(self, series: Series) -> tuple[Tensor, Tensor]:
        values, present = series.values, series.present
        steps = torch.arange(values.shape[2], device=values.device)
        inside = steps < series.lengths[:, None]  # [S, T]
        angles = values[..., None] * (math.pi * 2.0 ** torch.arange(self.octaves, device=values.device))
        figures = torch.cat([values[..., None], angles.sin(), angles.cos()], dim=-1)  # [S, K, T, 1 + 2 octaves]
        figures = torch.cat([figures * present[..., None], present[..., None].to(figures)], dim=-1)
        if self.apart:
            figures = figures.flatten(0, 1)
            inside = inside.repeat_interleave(self.layout.channels, dim=0)
        else:
            figures = figures.transpose(1, 2).flatten(2)
        time = (steps / _STEPS).to(figures).expand(figures.shape[:2])
        inside = inside[..., None]
        return torch.cat([figures, time[..., None]], dim=-1) * inside, inside

    def _cut(self, states: Tensor) -> Tensor:
        """[N, T, H] to [N, P, patch H]."""
        missing = -states.shape[1] % self.layout.patch
        return nn.functional.pad(states, (0, 0, 0, missing)).unflatten(1, (-1, self.layout.patch)).flatten(2)

    def _pool(self, states: Tensor, inside: Tensor) -> Tensor:
        if self.pooling == "max":
            return states.masked_fill(~inside, -math.inf).amax(1).clamp_min(torch.finfo(states.dtype).min)
        return states.sum(1) / inside.sum(1).clamp_min(1)


class MaskedConvolution(nn.Module):
    """Convolution, GELU and a layer norm over the channels of each position; zero outside of the series."""

    def __init__(self, fan_in: int, fan_out: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(fan_in, fan_out, kernel_size, padding=kernel_size // 2)
        self.norm = nn.LayerNorm(fan_out)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, inside: Tensor) -> Tensor:
        """[N, T, fan_in], zero outside, to [N, T, fan_out], zero outside (`inside` is [N, T, 1])."""
        convolved = self.convolution(states.transpose(1, 2)).transpose(1, 2)
        return self.dropout(self.norm(nn.functional.gelu(convolved))) * inside


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """[..., size]: sine and cosine of the positions at wavelengths from 2 pi to 20 000 pi (Vaswani et al., 2017)."""
    rates = torch.exp(torch.arange(0, size, 2, device=positions.device) * (-math.log(10_000.0) / size))
    angles = positions[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :size]
