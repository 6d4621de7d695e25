"""The three norms of a ResNet, and what each means for a run of several processes.

- `group` looks at one image at a time: the same training on any number of processes, and with any micro-batch.
- `sync_batch` looks at all images that are computed at once, on all processes: the same training on any number of
  processes, as long as each step is computed at once (no accumulation).
- `batch` looks at the images that one process computes at once: another number of processes is another training.
"""

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

Norm = Literal["group", "sync_batch", "batch"]

_CHANNELS_OF_A_GROUP = 16


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """
    Sources: Wu and He, "Group Normalization", ECCV 2018 (16 channels a group: table 3); Ioffe and Szegedy, "Batch
    Normalization", ICML 2015.
    """
    if kind == "group":
        return nn.GroupNorm(max(1, channels // _CHANNELS_OF_A_GROUP), channels)
    return nn.BatchNorm2d(channels) if kind == "batch" else SyncBatchNorm(channels)


class SyncBatchNorm(nn.BatchNorm2d):
    """A batch norm over the images of all processes, in plain operations: torch's own is for GPUs alone."""

    def forward(self, input: Tensor) -> Tensor:
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        if not (self.training and several):
            return super().forward(input)
        values = input.float()
        places = values.new_full((1,), values.numel() / values.shape[1])
        count, total = _Sum.apply(torch.cat([places, values.sum((0, 2, 3))])).split([1, values.shape[1]])
        mean = total / count
        centred = values - mean[:, None, None]
        variance = _Sum.apply(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)


class _Sum(torch.autograd.Function):
    """Sum over all processes. What each adds has a part in all losses, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        value = value.clone()
        dist.all_reduce(value)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient
