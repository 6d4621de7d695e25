"""Provides normalization layers of a ResNet.

- `group` normalizes each image by itself: the training does not depend on world size and micro-batch size.
- `sync_batch` normalizes over the micro-batches of all ranks: the training does not depend on the world size, if there
  is no gradient accumulation.
- `batch` normalizes over the micro-batch of one rank: the training depends on the world size.
"""

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from typing_extensions import override

Norm = Literal["group", "sync_batch", "batch"]

_GROUP_CHANNELS = 16


def build_norm(kind: Norm, channels: int) -> nn.GroupNorm | nn.BatchNorm2d:
    """Return a normalization layer for states [B, C, H, W].

    Sources: Wu and He, "Group Normalization", ECCV 2018 (16 channels a group: table 3); Ioffe and Szegedy, "Batch
    Normalization", ICML 2015.
    """
    if kind == "group":
        return nn.GroupNorm(max(1, channels // _GROUP_CHANNELS), channels)
    return nn.BatchNorm2d(channels) if kind == "batch" else SyncBatchNorm(channels)


class SyncBatchNorm(nn.BatchNorm2d):
    """Batch normalization over the images of all ranks, in plain operations; torch's own is for GPUs only."""

    @override
    def forward(self, input: Tensor) -> Tensor:
        distributed = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        if not (self.training and distributed):
            return super().forward(input)
        values = input.float()  # sums over many pixels, also under autocast
        number = values.new_full((1,), values.numel() / values.shape[1])
        # One all-reduce carries the count and the sums. Ranks may have different numbers of images.
        count, total = _Sum.apply(torch.cat([number, values.sum((0, 2, 3))])).split([1, values.shape[1]])
        mean = total / count
        # The variance needs a second all-reduce: E[x^2] - E[x]^2 in one pass would cancel digits.
        centered = values - mean[:, None, None]
        variance = _Sum.apply(centered.square().sum((0, 2, 3))) / count
        assert self.num_batches_tracked is not None and self.momentum is not None, "BatchNorm2d sets them"
        assert self.running_mean is not None and self.running_var is not None, "BatchNorm2d sets them"
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            # As BatchNorm2d: the running variance is unbiased, the variance that normalizes is not.
            unbiased = variance * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        return (centered * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)


class _Sum(torch.autograd.Function):
    """Differentiable sum over all ranks. Each rank's value affects all losses, so its gradient is summed too."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Tensor) -> Tensor:
        # A copy, because all_reduce works in place and the argument belongs to the caller.
        value = value.clone()
        dist.all_reduce(value)
        return value

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient
