"""Inputs of pointwise attention, and its gradients."""

import torch

from lightning_modules.recommender.networks.attention.fused_pointwise_attention import Biases
from lightning_modules.recommender.networks.time_buckets import LAST_BUCKET, time_buckets

B, L, D, LONGEST = 3, 7, 4, 9


def silu(x):
    return x / (1 + (-x).exp())


def make(heads=2, dtype=torch.float64, length=L, longest=LONGEST):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype, requires_grad=True)

    times = (10 ** (6 * torch.rand(B, length, generator=generator))).long().cumsum(1)
    buckets = time_buckets(times.unsqueeze(2) - times.unsqueeze(1))
    qkv = [normal(B, heads, length, D) for _ in range(3)]
    return *qkv, Biases(normal(longest), normal(LAST_BUCKET + 1), buckets)


def gradients(result, inputs):
    weight = torch.randn(result.shape, dtype=result.dtype, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad((result * weight).sum(), inputs)
