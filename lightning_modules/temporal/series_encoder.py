"""Encodes time series with a 1D-CNN into which padding and missing measurements do not leak.

The inputs of a value are the value, its Fourier features (Tancik et al., "Fourier features", NeurIPS 2020), in which
the digits of a percentage are nearly linear, its place in the range of its channel, and whether it was measured. Norms
are over the channels of one position, and the range covers the measured steps. So the features of a series do not
depend on the other series of its batch.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from datamodules.temporal.batch import Series, SeriesLayout
from lightning_modules.multimodal.flops import product_flops

Pooling = Literal["mean", "max"]

VALUE_WAVES = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Frequencies of a value, in periods from 0 to the capacity; at 10 a period is a tens digit of a percentage."""

STEP_WAVES = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Frequencies of a step, in periods per step; at 0.1 a period is a tens digit of a step's number."""

_SHARP = 0.02
"""Distance from a channel's extreme at which its indicator falls to 1/e, as a share of the capacity."""

VALUE_FEATURES = 7 + 2 * len(VALUE_WAVES)
"""Number of `value_features` of a value."""

SUMMARY_FEATURES = 4 * (1 + 2 * len(VALUE_WAVES)) + 2 * 2 * len(STEP_WAVES)
"""Number of `summary_features` of a channel."""


def fourier_features(x: Tensor, frequencies: tuple[float, ...]) -> Tensor:
    """Return sine and cosine [..., 2F] of `x` [...] at F frequencies, in periods per unit."""
    # In bf16 an angle of 60 is off by up to an eighth of a radian.
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    # [..., F]; sine and cosine are within 1, so the result fits the narrow format again.
    angles = torch.stack([precise * (2 * math.pi * frequency) for frequency in frequencies], dim=-1)
    return torch.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype)


def value_features(values: Tensor, present: Tensor) -> Tensor:
    """Return features [S, K, T, VALUE_FEATURES] of values [S, K, T]; 0 where a measurement is missing."""
    # Extremes of the measured steps [S, K, 1]; infinite in a channel without measurements, which is masked below.
    top = values.masked_fill(~present, -math.inf).amax(-1, keepdim=True)
    low = values.masked_fill(~present, math.inf).amin(-1, keepdim=True)
    above, below = (values - low).masked_fill(~present, 0), (top - values).masked_fill(~present, 0)
    span = (top - low).clamp_min(0.01)  # avoids a division by 0 in a flat channel
    share = torch.where(present, above / span, 0)
    # [S, K, T, 5]; the constant 1, masked below, distinguishes a measured 0 from a missing measurement.
    level = torch.stack((values, torch.ones_like(values), above, below, share), dim=-1)
    # Exponentials mark the extremes, where a difference of a hundredth matters.
    sharp = torch.stack(((-above / _SHARP).exp(), (-below / _SHARP).exp()), dim=-1)
    return torch.cat((level, sharp, fourier_features(values, VALUE_WAVES)), dim=-1) * present.unsqueeze(-1)


def summary_features(values: Tensor, present: Tensor) -> Tensor:
    """Return a summary [S, K, SUMMARY_FEATURES] of each channel of values [S, K, T]; 0 without measurements.

    It contains the minimum, the maximum, and the means of the first and the last tenth of the measurements, each with
    its Fourier features, and the Fourier features of the first steps at the minimum and at the maximum. A patch alone
    contains neither, so without a summary the language model has to search all patches for them.
    """
    top, highest = values.masked_fill(~present, -math.inf).max(-1)
    low, lowest = values.masked_fill(~present, math.inf).min(-1)
    # [S, K, T]: measurements are ranked, not steps, as a channel may begin late or have gaps.
    rank = present.cumsum(-1)  # 1 for the first measurement
    number = rank[..., -1:]
    end = (number // 10).clamp_min(1)
    # [S, K], means over the first and the last tenth
    first, last = (
        (values * part).sum(-1) / end.squeeze(-1) for part in (present & (rank <= end), present & (rank > number - end))
    )
    measured = number > 0
    # [S, K, 4]; a channel without measurements has infinite extremes, and 0 times infinity is NaN.
    levels = torch.stack((low, top, first, last), dim=-1).masked_fill(~measured, 0)
    steps = torch.stack((lowest, highest), dim=-1).to(values.dtype)
    parts = (levels, fourier_features(levels, VALUE_WAVES).flatten(-2), fourier_features(steps, STEP_WAVES).flatten(-2))
    return torch.cat(parts, dim=-1) * measured


class SeriesEncoder(nn.Module):
    """Maps series of K channels to features [F, C]; the layout determines their number.

    Args:
        layout: channels, kind of features and patch length.
        output_size: width C of a feature.
        hidden_size: width of the convolutions.
        kernel_sizes: odd kernel sizes of the convolutions, with one residual layer each.
        pooling: how the kind `pooled` reduces all steps to one feature.
        dropout: share of activations dropped in training, after each layer.
        activation_checkpointing: keep only the states between layers in training, and recompute the others in the
            backward pass.
        summary: add `summary_features` of a channel to each of its features; needs the kind `channel_patch`.
    """

    def __init__(
        self,
        layout: SeriesLayout,
        output_size: int = 128,
        hidden_size: int = 32,
        kernel_sizes: tuple[int, ...] = (3, 5, 7),
        pooling: Pooling = "mean",
        dropout: float = 0.0,
        activation_checkpointing: bool = False,
        summary: bool = False,
    ) -> None:
        super().__init__()
        # An even kernel cannot be padded alike on both sides, so the number of steps would change by one.
        if any(size % 2 == 0 for size in kernel_sizes):
            raise ValueError(f"kernel_sizes must be odd, so that a layer keeps the steps; got {list(kernel_sizes)}")
        if summary and layout.tokens != "channel_patch":
            raise ValueError(
                f"model.init_args.encoder_summary: found true with data.init_args.series_tokens {layout.tokens}, whose "
                "features mix the channels; expected false, or series_tokens channel_patch"
            )
        self.layout, self.pooling, self.output_size = layout, pooling, output_size
        self.activation_checkpointing = activation_checkpointing
        self.per_channel = layout.tokens == "channel_patch"
        width = VALUE_FEATURES * (1 if self.per_channel else layout.channels)
        self.enter = nn.Linear(width, hidden_size)
        self.layers = nn.ModuleList(MaskedConvolution(hidden_size, size, dropout) for size in kernel_sizes)
        # A patch keeps its steps side by side, so their order is not lost as in a mean.
        steps = 1 if layout.tokens == "pooled" else layout.patch
        self.read_out = nn.Linear(steps * hidden_size, output_size)
        self.time = nn.Linear(
            2 * len(STEP_WAVES), hidden_size if layout.tokens == "pooled" else output_size, bias=False
        )
        # Place and channel get the scale of the values; smaller encodings are confused for hundreds of training steps.
        nn.init.normal_(self.time.weight, std=len(STEP_WAVES) ** -0.5)
        if layout.tokens != "pooled":
            self.raw = nn.Linear(steps * width, output_size, bias=False)  # bypasses the convolutions
        if self.per_channel:
            self.channel = nn.Embedding(layout.channels, output_size)
        self.summary = nn.Linear(SUMMARY_FEATURES, output_size, bias=False) if summary else None

    def forward(self, series: Series) -> Tensor:
        """Return features [F, C] in the order of series, channels (`channel_patch`) and patches."""
        steps = torch.arange(series.values.shape[2], device=series.values.device)
        inside = (steps < series.lengths[:, None]).unsqueeze(-1)  # [S, T, 1]
        inputs = value_features(series.values, series.present)
        if self.per_channel:
            # Each channel is a row of its own: N = S K.
            inputs, inside = inputs.flatten(0, 1), inside.repeat_interleave(self.layout.channels, dim=0)
        else:
            # All channels of a step are one input: N = S.
            inputs = inputs.transpose(1, 2).flatten(2)
        states = self.enter(inputs) * inside  # [N, T, H]
        if self.layout.tokens == "pooled":
            states = states + self._time_embedding(steps) * inside
        for layer in self.layers:
            if self.activation_checkpointing and self.training:
                states = checkpoint(layer, states, inside, use_reentrant=False, preserve_rng_state=True)
            else:
                states = layer(states, inside)
        if self.layout.tokens == "pooled":
            # A series without steps has no placeholder, so it must not have a feature.
            return self.read_out(self._pool(states, inside))[series.lengths > 0]
        patches = self.read_out(self._to_patches(states)) + self.raw(self._to_patches(inputs))  # [N, P, C]
        number = torch.arange(patches.shape[1], device=patches.device)
        patches = patches + self._time_embedding(number * self.layout.patch)
        real = number < -(-series.lengths[:, None] // self.layout.patch)  # [S, P]; -(-a // b) rounds up
        if self.per_channel:
            # [S K, P, C] -> [S, K, P, C]
            patches = patches.unflatten(0, (-1, self.layout.channels)) + self.channel.weight[:, None]
            if self.summary is not None:
                patches = patches + self.summary(summary_features(series.values, series.present))[:, :, None]
            real = real[:, None].expand(patches.shape[:3])
        return patches[real.nonzero(as_tuple=True)]  # a mask would be searched again in the backward pass

    def flops(self, series: Series) -> int:
        """Return the FLOPs of a trainable encoder, forward and backward; see multimodal/flops.py."""
        samples, channels, steps = series.values.shape
        rows, patches = samples * (channels if self.per_channel else 1), -(-steps // self.layout.patch)
        # Measurements need no gradient, so layers that read them have none to pass on.
        total = rows * steps * (product_flops(self.enter, back=False) + product_flops(self.layers, back=True))
        if self.layout.tokens == "pooled":
            return total + rows * product_flops(self.read_out, back=True) + steps * product_flops(self.time, back=False)
        total += rows * patches * (product_flops(self.read_out, back=True) + product_flops(self.raw, back=False))
        if self.summary is not None:
            total += rows * product_flops(self.summary, back=False)
        return total + patches * product_flops(self.time, back=False)

    def _time_embedding(self, steps: Tensor) -> Tensor:
        """Return position embeddings [N, H] or [N, C] of steps [N]."""
        # The features' dtype is not used, which autocast narrows: bf16 represents no odd number above 256.
        dtype = self.time.weight.dtype
        return self.time(fourier_features(steps.to(torch.promote_types(dtype, torch.float32)), STEP_WAVES).to(dtype))

    def _to_patches(self, states: Tensor) -> Tensor:
        """Map [N, T, H] to patches [N, P, patch * H], padded with zeros."""
        missing = -states.shape[1] % self.layout.patch
        return nn.functional.pad(states, (0, 0, 0, missing)).unflatten(1, (-1, self.layout.patch)).flatten(2)

    def _pool(self, states: Tensor, inside: Tensor) -> Tensor:
        if self.pooling == "max":
            # A series without steps has the maximum -inf, which would make gradients NaN.
            return states.masked_fill(~inside, -math.inf).amax(1).clamp_min(torch.finfo(states.dtype).min)
        return states.sum(1) / inside.sum(1).clamp_min(1)


class MaskedConvolution(nn.Module):
    """Residual layer: norm over the channels of each position, convolution, ReLU. Zero outside of the series."""

    def __init__(self, size: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.convolution = nn.Conv1d(size, size, kernel_size, padding=kernel_size // 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, inside: Tensor) -> Tensor:
        """Map states [N, T, H] to the same shape; both are zero where `inside` [N, T, 1] is false."""
        # The norm's bias makes padding non-zero, so it is masked before the convolution mixes neighboring steps.
        convolved = self.convolution((self.norm(states) * inside).transpose(1, 2)).transpose(1, 2)
        return states + self.dropout(torch.relu(convolved)) * inside
