"""Has inputs and layers of pointwise attention, and compares a layer with the formula of its paper."""

from collections.abc import Callable

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


def drawn_layer(kind, heads=2):
    """Return an attention layer of 8 channels whose parameters are all random."""
    torch.manual_seed(0)
    layer = kind(8, heads, 0.5, LONGEST)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.double().eval()


def compare_with_paper(layer: torch.nn.Module, papers_layer: Callable[..., torch.Tensor]) -> None:
    """Assert that a layer and ``papers_layer(x, buckets, layer)`` have equal outputs and gradients."""
    buckets = make()[3].buckets
    x = torch.randn(B, L, 8, dtype=torch.float64, requires_grad=True)
    actual, expected = layer(x, buckets), papers_layer(x, buckets, layer)
    torch.testing.assert_close(actual, expected)
    inputs = (x, *layer.parameters())
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs))
    last = torch.tensor([2, 6, 0])
    torch.testing.assert_close(layer(x, buckets, last)[:, 0], actual[torch.arange(B), last])
