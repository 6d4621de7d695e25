"""Measures the peak rates of the device: copies of memory, and products of large matrices in each format."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.device.measures.peaks import peak
from benchmarks.device.measures.reference import (
    SIXTEEN_BITS,
    VALUE_BOUNDS,
    Format,
    formats,
    products_in,
    relative_error,
)
from benchmarks.device.measures.timing import take_turns
from benchmarks.device.measures.traffic import Copy
from benchmarks.device.part import NEEDS_CUDA, Check, ResultTable, Row, Setting

_COPIED, _EDGE = 4 << 30, 8192
_TINY_COPIED, _TINY_EDGE = 1 << 20, 64


def measure(setting: Setting) -> Iterator[list[Check] | ResultTable]:
    """Measure bytes per second and floating-point operations per second."""
    torch.manual_seed(1)
    device, edge = setting.device, _TINY_EDGE if setting.tiny else _EDGE
    copy = Copy(device, _TINY_COPIED if setting.tiny else _COPIED)
    # Random numbers: products of zeros draw less power, and a GPU would run at a higher clock rate.
    left, right = torch.randn((2, edge, edge), device=device)
    works: dict[str, Callable[[], Any]] = {"copy": copy}
    checks = []
    exact = left.double() @ right.double()
    for name in formats(device):
        dtype = SIXTEEN_BITS.get(name, torch.float32)
        works[name] = _product(left.to(dtype), right.to(dtype), name)
        checks.append(Check(f"product in {name}", relative_error([works[name]()], [exact]), VALUE_BOUNDS[name]))
    copy()
    checks.append(Check("copy", float((copy.source != copy.target).sum()), 0.0))
    del exact
    yield checks
    turns = take_turns(works, device, setting.repeats)
    moved = 2 * copy.source.numel() * copy.whole
    yield ResultTable(
        f"memory: a copy of {moved / 2**30:.3g} GiB, read and written",
        ("GB/s",),
        [Row("copy", ([moved / seconds / 1e9 for seconds in turns.pop("copy")],))],
    )
    rows = []
    for product in formats(device):
        # A multiplication and an addition for each of edge^3 pairs
        rates = [2 * edge**3 / seconds for seconds in turns[product]]
        best = peak(setting, product)
        rows.append(Row(product, ([rate / 1e12 for rate in rates], [rate / best for rate in rates] if best else "")))
    rows += [Row(name, (NEEDS_CUDA, "")) for name in ("tf32", "fp16") if name not in turns]
    yield ResultTable(f"products of {edge} x {edge} matrices", ("TFLOP/s", "of the data sheet"), rows)


def _product(left: Tensor, right: Tensor, name: Format) -> Callable[[], Tensor]:
    # Allocated once, so that only the product is timed.
    result = torch.empty_like(left)

    def work() -> Tensor:
        with products_in(name):
            return torch.mm(left, right, out=result)

    return work
