"""Times time-interval attention beside the naive form with a vector per pair, both as a share of a copy of their bytes.

A single layer with its tables, forward and backward. At C 64 it is limited by memory. The share of a form is the time
of copying the bytes that its operations read and write, over its own time.
"""

from collections.abc import Iterator
from copy import deepcopy
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.device.histories import REALISTIC, TINY, full_batch
from benchmarks.device.measures.reference import Format, Outcome, Variant, autocast, compared, formats, products_in
from benchmarks.device.measures.timing import Work, memory_of, take_turns
from benchmarks.device.measures.traffic import Copy, bytes_of
from benchmarks.device.part import NEEDS_CUDA, Check, ResultTable, Row, Setting
from benchmarks.recommender.naive_time_attention import NaiveTimeAttention, NaiveTimeTables
from lightning_modules.recommender.networks.attention.time_interval import (
    AttentionKernel,
    TimeIntervalAttention,
    TimeTables,
)

_DROPOUT = 0.2


class _Layer(nn.Module):
    """Tables and attention in one of the two forms, which have the same weights."""

    def __init__(
        self, tables: TimeTables, attention: TimeIntervalAttention, naive: bool, kernel: AttentionKernel = "torch"
    ) -> None:
        super().__init__()
        if kernel != "torch":
            attention = deepcopy(attention)
            attention.kernel = kernel
        self.tables: nn.Module = NaiveTimeTables(tables) if naive else tables
        self.attention: nn.Module = NaiveTimeAttention(attention) if naive else attention

    def forward(self, x: Tensor, positions: Tensor, times: Tensor, scale: Tensor) -> Tensor:
        return self.attention(x, self.tables(positions, times, scale))


def measure(setting: Setting) -> Iterator[list[Check] | ResultTable]:
    """Measure a table per format; in fp32 also with dropout and with torch.compile."""
    sizes, device = TINY if setting.tiny else REALISTIC, setting.device
    torch.manual_seed(1)
    history = full_batch(sizes, device).history
    positions = torch.arange(sizes.length, device=device).expand(sizes.batch, -1)
    inputs = positions, history.times, history.time_scale
    x = torch.randn((sizes.batch, sizes.length, sizes.hidden_size), device=device, requires_grad=True)
    gradient = torch.randn_like(x)
    parts = (
        TimeTables(sizes.length, sizes.time_span, sizes.hidden_size, 1, _DROPOUT).to(device),
        TimeIntervalAttention(sizes.hidden_size, 1, _DROPOUT).to(device),
    )
    naive, ours = _Layer(*parts, naive=True).eval(), _Layer(*parts, naive=False).eval()
    forms = {"naive": naive, "ours": ours}
    if device == "cuda":
        forms["triton"] = _Layer(*parts, naive=False, kernel="triton").eval()

    # The naive form is the reference: it follows the paper's formula term by term.
    exact = deepcopy(naive).double()
    wide = x.detach().double().requires_grad_()
    reference = _outcome(exact, wide, inputs, gradient.double(), "fp32", device)

    def variant(name: str, layer: _Layer, format: Format) -> Variant:
        def work() -> None:
            _pass(layer, x, inputs, gradient, format, device)
            _forget(layer, x)

        return Variant(name, format, work, lambda: _outcome(layer, x, inputs, gradient, format, device))

    variants = {}
    for format in formats(device):
        variants[format] = [variant(f"{form} {format}", layer, format) for form, layer in forms.items()]
        if setting.compiled and format in ("fp32", "bf16"):
            fast = deepcopy(naive)
            fast.compile()
            variants[format].append(variant(f"naive {format} compiled", fast, format))
    checks, failures = compared([variant for group in variants.values() for variant in group], reference)
    del exact, wide, reference
    yield checks
    for format, group in variants.items():
        works = {variant.name: variant.work for variant in group if variant.name not in failures}
        failed = {variant.name: failures[variant.name] for variant in group if variant.name in failures}
        if format == "fp32":  # dropout has no reference, and moves more bytes
            for form, layer in forms.items():
                name, dropped = f"{form} {format}, dropout {_DROPOUT}", deepcopy(layer).train()
                works[name] = variant(name, dropped, format).work
        yield _table(setting, works, format, failed)
    yield from _absent(device)


def _table(setting: Setting, works: dict[str, Work], format: Format, failures: dict[str, str]) -> ResultTable:
    device, sizes = setting.device, TINY if setting.tiny else REALISTIC
    # A compiled form has no single operations to count.
    moved = {name: bytes_of(work) for name, work in works.items() if "compiled" not in name}
    memory = {name: memory_of(work, device) for name, work in works.items()}
    copies = {name: Copy(device, size) for name, size in moved.items()}
    turns = take_turns(works | {f"copy for {name}": copy for name, copy in copies.items()}, device, setting.repeats)
    rows = []
    for name in works:
        seconds, naive = turns[name], turns.get(f"naive {format}")
        counted: tuple[list[float] | float | str, ...] = ("not counted", "", "")
        if name in moved:
            copied = turns[f"copy for {name}"]
            counted = (
                moved[name] / 1e9,
                moved[name] / median(seconds) / 1e9,
                [copy / own_seconds for copy, own_seconds in zip(copied, seconds, strict=True)],
            )
        times = [theirs / own_seconds for theirs, own_seconds in zip(naive, seconds, strict=True)] if naive else ""
        rows.append(Row(name, ([1e3 * each for each in seconds], times, *counted, memory[name])))
    return ResultTable(
        f"time-interval attention, forward and backward, B {sizes.batch}, L {sizes.length}, C {sizes.hidden_size}, "
        f"T {sizes.time_span}, {format}",
        ("ms", "times as fast as naive", "GB moved", "GB/s", "of a copy's speed", "GB above the weights"),
        rows,
        failures,
    )


def _absent(device: str) -> Iterator[ResultTable]:
    lacking = [name for name in ("tf32", "fp16") if name not in formats(device)]
    if lacking:
        yield ResultTable(
            "time-interval attention in other formats", ("ms",), [Row(name, (NEEDS_CUDA,)) for name in lacking]
        )


def _pass(
    layer: nn.Module, x: Tensor, inputs: tuple[Tensor, ...], gradient: Tensor, format: Format, device: str
) -> Tensor:
    _forget(layer, x)
    with products_in(format):
        with autocast(format, device):
            result = layer(x, *inputs)
        result.backward(gradient.to(result.dtype))
    return result


def _forget(layer: nn.Module, x: Tensor) -> None:
    """Drop the gradients, which would count in a pass's peak memory."""
    x.grad = None
    layer.zero_grad(set_to_none=True)


def _outcome(
    layer: nn.Module, x: Tensor, inputs: tuple[Tensor, ...], gradient: Tensor, format: Format, device: str
) -> Outcome:
    result = _pass(layer, x, inputs, gradient, format, device)
    found = [x.grad, *(weight.grad for weight in layer.parameters())]
    return Outcome(result.detach().clone(), [part.clone() for part in found if part is not None])
