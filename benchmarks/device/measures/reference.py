"""Measures the error of a computation in each number format, relative to float64."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.device.measures.timing import Work
from benchmarks.device.part import Check

Format = Literal["fp32", "tf32", "bf16", "fp16"]

SIXTEEN_BITS: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
VALUE_BOUNDS: dict[str, float] = {"fp32": 1e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 2e-2}
GRADIENT_BOUNDS: dict[str, float] = {"fp32": 1e-3, "tf32": 1e-1, "fp16": 1e-1, "bf16": 2e-1}
"""Bounds of the relative errors. A missing term or mask causes errors near 1. Rounding switches some ReLUs near 0, so
errors of gradients are about the square root of the rounding error.
"""


class Outcome(NamedTuple):
    """Result of a step."""

    value: Tensor  # loss or output
    gradients: list[Tensor]


class Variant(NamedTuple):
    """A variant of a computation: its timed work, and the outcome that is compared with the reference."""

    name: str
    format: Format
    work: Work  # timed
    outcome: Callable[[], Outcome]  # runs the same once, for the comparison


def gradients_of(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Return the gradients of parameters, all of which must have one."""
    found = [parameter.grad for parameter in parameters]
    gradients = [gradient for gradient in found if gradient is not None]
    # zip would pair gradients with those of other parameters.
    if len(gradients) < len(found):
        raise ValueError(f"{len(found) - len(gradients)} of {len(found)} parameters have no gradient")
    return gradients


@contextmanager
def products_in(format: Format) -> Iterator[None]:
    """Compute fp32 products and convolutions in fp32 or in TF32; for forward and backward."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if format == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = format == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def autocast(format: Format, device: str) -> torch.autocast:
    """Return autocast to 16 bits, as in Lightning's `*-mixed`, or a null context; for the forward pass only."""
    return torch.autocast(device, SIXTEEN_BITS.get(format), enabled=format in SIXTEEN_BITS)


def compared(variants: Iterable[Variant], reference: Outcome) -> tuple[list[Check], dict[str, str]]:
    """Return two checks per variant, and the errors of variants that could not run."""
    checks, failures = [], {}
    for variant in variants:
        try:
            outcome = variant.outcome()
            value = relative_error([outcome.value], [reference.value])
            gradients = relative_error(outcome.gradients, reference.gradients)
        except Exception as problem:  # noqa: BLE001 the other variants are measured anyway, and this is reported
            failures[variant.name] = f"{type(problem).__name__}: {problem}"
            continue
        checks.append(Check(variant.name, value, VALUE_BOUNDS[variant.format]))
        checks.append(Check(f"{variant.name}, gradients", gradients, GRADIENT_BOUNDS[variant.format]))
    return checks, failures


def relative_error(found: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """Return ||found - reference|| / ||reference|| over all tensors, in float64."""
    if [part.shape for part in found] != [part.shape for part in reference]:
        raise ValueError("the computation and its reference differ in the shapes of what they make")
    pairs = zip(found, reference, strict=True)
    # One norm over all tensors: a small tensor whose gradient is near 0 has no meaningful ratio of its own.
    away = sum(float((ours.double() - exact.double()).square().sum()) for ours, exact in pairs)
    return (away / sum(float(exact.double().square().sum()) for exact in reference)) ** 0.5


def formats(device: str) -> tuple[Format, ...]:
    """Return the formats that the device supports."""
    return ("fp32", "tf32", "bf16", "fp16") if device == "cuda" else ("fp32", "bf16")
