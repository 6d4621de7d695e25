"""Compares fused computations with plain ones in float64, and integers on all devices."""

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.device.measures.reference import GRADIENT_BOUNDS, SIXTEEN_BITS, VALUE_BOUNDS, formats, relative_error
from benchmarks.device.part import Setting
from engine.determinism.tensor_hash import hash_tensor
from lightning_modules.recommender.losses.linear_cross_entropy import linear_cross_entropy
from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations, causal_attention
from lightning_modules.recommender.networks.attention.fused_pointwise_attention import Biases, pointwise_attention
from lightning_modules.recommender.networks.sinkhorn import sinkhorn
from lightning_modules.recommender.networks.time_buckets import time_buckets
from tests.lightning_modules.recommender.networks.attention import test_attention, test_hstu
from tests.support.recommender.plain_sinkhorn import plain_sinkhorn

LENGTH = 60  # more than a tile of a CPU
NO_CPU_FORM = pytest.mark.no_cpu_form  # tests of networks/kernels interpret it
_MEMORY = 40 << 30  # bytes of a GPU in which the plain forms of the benchmark's sizes fit, in float64


@pytest.mark.slow
@pytest.mark.parametrize("part", ["time_attention", "recommender"])
def test_whole_layers_and_steps_equal_float64(device, workplace, record_property, part):
    """Time-interval attention with its tables, and training steps of SASRec and TiSASRec, in every number format."""
    errors = workplace.call(errors_of_part, device, part)
    record_property("relative_errors", errors)
    assert len(errors) >= 2 * len(formats(device))
    assert {name: error for name, (error, bound) in errors.items() if not error <= bound} == {}


def errors_of_part(device: str, part: str) -> dict[str, tuple[float, float]]:
    """Return {side: (error, bound)} of the benchmark's own checks."""
    large = device == "cuda" and torch.cuda.get_device_properties(0).total_memory > _MEMORY
    setting = Setting(device, tiny=not large, repeats=1, compiled=False)
    checks = next(importlib.import_module(f"benchmarks.device.{part}").measure(setting))
    return {check.name: (check.error, check.bound) for check in checks}


@pytest.mark.parametrize(
    "name",
    ["causal", "timed", pytest.param("timed_triton", marks=NO_CPU_FORM), "pointwise", "cross_entropy", "sinkhorn"],
)
def test_fused_functions_equal_float64(device, workplace, record_property, name):
    errors = workplace.call(errors_of_function, device, name)
    record_property("relative_errors", errors)
    too_large = {
        format: (value, gradient)
        for format, (value, gradient) in errors.items()
        if not (value <= VALUE_BOUNDS[format] and gradient <= GRADIENT_BOUNDS[format])
    }
    assert too_large == {}
    assert list(errors) == ["fp32", "bf16", "fp16"][: len(errors)]


def errors_of_function(device: str, name: str) -> dict[str, tuple[float, float]]:
    """Return {format: (error of the value, error of the gradients)}."""
    plain, fused, tensors, only_float32 = FUNCTIONS[name]()
    exact, gradients = _outcome(plain, tensors, "cpu", torch.float64)
    errors = {}
    for format in ["fp32"] if only_float32 else ["fp32", *SIXTEEN_BITS]:
        found, own = _outcome(fused, tensors, device, SIXTEEN_BITS.get(format, torch.float32))
        errors[format] = relative_error([found], [exact]), relative_error(own, gradients)
    return errors


def _outcome(
    function: Callable[..., Tensor], tensors: list[Tensor], device: str, dtype: torch.dtype
) -> tuple[Tensor, list[Tensor]]:
    """Return the value and the gradients of the floating-point tensors, on the CPU."""
    placed = [each.detach().to(device, dtype if each.is_floating_point() else each.dtype) for each in tensors]
    trained = [each.requires_grad_() for each in placed if each.is_floating_point()]
    result = function(*placed)
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = torch.autograd.grad((result * weight.to(device, result.dtype)).sum(), trained)
    return result.detach().cpu(), [gradient.cpu() for gradient in gradients]


Case = tuple[Callable[..., Tensor], Callable[..., Tensor], list[Tensor], bool]


def _timed() -> Case:
    query, key, value, relations = test_attention.make(length=LENGTH)

    def of(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda query, key, value, keys, values, intervals: attend(
            query, key, value, relations=Relations(intervals, keys, values)
        )

    tensors = [query, key, value, relations.keys, relations.values, relations.intervals]
    return of(test_attention.naive_attention), of(causal_attention), tensors, False


def _timed_triton() -> Case:
    from lightning_modules.recommender.networks.attention.kernels.time_attention import time_interval_attention

    plain, _, tensors, only_float32 = _timed()

    def fused(*tensors: Tensor) -> Tensor:
        query, key, value, keys, values, intervals = tensors
        return time_interval_attention(query, key, value, 0.0, Relations(intervals, keys, values))

    return plain, fused, tensors, only_float32


def _causal() -> Case:
    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, -torch.inf).softmax(-1) @ value

    query, key, value, _ = test_attention.make(length=LENGTH)
    return plain, causal_attention, [query, key, value], False


def _pointwise() -> Case:
    query, key, value, biases = test_hstu.make(length=LENGTH, longest=LENGTH)

    def of(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda query, key, value, distances, times, buckets: attend(
            query, key, value, Biases(distances, times, buckets)
        )

    tensors = [query, key, value, biases.distances, biases.times, biases.buckets]
    return of(test_hstu.naive_attention), of(pointwise_attention), tensors, False


def _cross_entropy() -> Case:
    draws = torch.Generator().manual_seed(0)
    states, weight = (torch.randn(size, 16, generator=draws, dtype=torch.float64) for size in (300, 50))
    classes = torch.randint(50, (300,), generator=draws)

    def plain(states: Tensor, weight: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(states @ weight.T, classes, reduction="sum")

    return plain, linear_cross_entropy, [states, weight, classes], False


def _sinkhorn() -> Case:
    logits = torch.randn(4, 4, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return lambda x: plain_sinkhorn(x, 20), lambda x: sinkhorn(x, 20), [logits], True


FUNCTIONS: dict[str, Callable[[], Case]] = {
    "causal": _causal,
    "timed": _timed,
    "timed_triton": _timed_triton,
    "pointwise": _pointwise,
    "cross_entropy": _cross_entropy,
    "sinkhorn": _sinkhorn,
}


def test_integers_are_equal_on_every_device(device, workplace):
    assert workplace.call(hashes_and_buckets, device) == workplace.call(hashes_and_buckets, "cpu")


def hashes_and_buckets(device: str) -> list[Any]:
    """Return hashes of tensors of several formats and sizes, and the logarithmic buckets beside their borders."""
    return [*_hashes(device), *_buckets(device)]


def _hashes(device: str) -> Iterator[int]:
    draws = torch.Generator().manual_seed(0)
    for size in (1, 7, 40_000, 3_000_000):
        numbers = torch.randn(size, generator=draws)
        for tensor in (numbers, numbers.half(), numbers.bfloat16(), numbers > 0):
            yield hash_tensor(tensor.to(device)).item()


def _buckets(device: str) -> list[int]:
    borders = torch.tensor([math.ceil(math.exp(0.301 * index)) for index in range(1, 64)])
    beside = torch.stack([borders - 1, borders, borders + 1])
    buckets: list[int] = time_buckets(beside.to(device)).flatten().tolist()
    return buckets
