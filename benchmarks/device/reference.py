"""Number formats, and how far a computation in one of them is from the same in float64."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks.device.clock import Work
from benchmarks.device.part import Check

Format = Literal["fp32", "tf32", "bf16", "fp16"]

SIXTEEN_BITS: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
VALUE_BOUNDS: dict[str, float] = {"fp32": 1e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 2e-2}
GRADIENT_BOUNDS: dict[str, float] = {"fp32": 1e-3, "tf32": 1e-1, "fp16": 1e-1, "bf16": 2e-1}
"""Of the relative errors. A term or a mask that is missing makes errors near 1. Rounding alone turns some of the ReLUs
near 0 on or off, so gradients are off by about the root of what the formats round by."""


class Outcome(NamedTuple):
    """What a step computes."""

    value: Tensor  # loss or output
    gradients: list[Tensor]


class Side(NamedTuple):
    """One way to compute something."""

    name: str
    format: Format
    work: Work  # what is timed
    outcome: Callable[[], Outcome]  # the same once, to be compared


@contextmanager
def products_in(format: Format) -> Iterator[None]:
    """Products and convolutions of fp32 in fp32, or in TF32; around forward and backward."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if format == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = format == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def autocast(format: Format, device: str) -> torch.autocast:
    """To 16 bits, as Lightning's `*-mixed` has it, or to nothing; around the forward pass alone."""
    return torch.autocast(device, SIXTEEN_BITS.get(format), enabled=format in SIXTEEN_BITS)


def compared(sides: Iterable[Side], reference: Outcome) -> tuple[list[Check], dict[str, str]]:
    """Two checks of each side, and the errors of those that could not be run."""
    checks, failures = [], {}
    for side in sides:
        try:
            outcome = side.outcome()
            value = relative_error([outcome.value], [reference.value])
            gradients = relative_error(outcome.gradients, reference.gradients)
        except Exception as problem:  # noqa: BLE001 the other sides are measured all the same, and this is said
            failures[side.name] = f"{type(problem).__name__}: {problem}"
            continue
        checks.append(Check(side.name, value, VALUE_BOUNDS[side.format]))
        checks.append(Check(f"{side.name}, gradients", gradients, GRADIENT_BOUNDS[side.format]))
    return checks, failures


def relative_error(found: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """||found - reference|| / ||reference|| of all tensors together, in float64."""
    if [part.shape for part in found] != [part.shape for part in reference]:
        raise ValueError("the computation and its reference differ in the shapes of what they make")
    pairs = zip(found, reference, strict=True)
    away = sum(float((ours.double() - exact.double()).square().sum()) for ours, exact in pairs)
    return (away / sum(float(exact.double().square().sum()) for exact in reference)) ** 0.5


def formats(device: str) -> tuple[Format, ...]:
    """Those that the device has."""
    return ("fp32", "tf32", "bf16", "fp16") if device == "cuda" else ("fp32", "bf16")
