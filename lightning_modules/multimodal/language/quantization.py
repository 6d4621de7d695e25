"""Stores weights of linear layers in 4 or 8 bits.

nf4: the 16 quantiles of a normal distribution, scaled by the largest magnitude of each block of 64 weights (Dettmers et
al., "QLoRA", 2023, arXiv 2305.14314). int8: 255 steps, scaled by the largest magnitude of each row.

The codes come from elementwise operations alone, so the same weights give the same bits on a CPU and on a GPU, with any
number of threads. Those of nf4 are in the layout of bitsandbytes, whose kernels read them.
"""

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from engine.system.bitsandbytes_import import import_bitsandbytes

Quantization = Literal["nf4", "int8"]

BLOCK = 64  # weights of nf4 with a common scale
SCALES_BLOCK = 256  # scales with a common scale, of double quantization

_CHUNK = 1 << 15  # weights of a thread at once: their temporary tensors stay in the cache of its core
_CHUNK_ON_GPU = 1 << 24


class QuantizedWeight(NamedTuple):
    """A matrix in few bits. All tensors hold integers, so that no conversion of a model to bf16 rounds them."""

    codes: Tensor
    """nf4: [ceil(N / 2)] uint8, the first weight in the high bits. int8: [rows, columns] int8."""
    scales: Tensor
    """float32 as uint8 bytes: of nf4 per block, of int8 per row. With double quantization a uint8 code per block."""
    scale_scales: Tensor | None
    """float32 as uint8 bytes, of double quantization: the mean scale, then a scale of each 256 scales."""


@torch.no_grad()
def quantize(weight: Tensor, kind: Quantization, double: bool) -> QuantizedWeight:
    """Quantize a matrix [rows, columns] of floating-point numbers, on its device.

    Args:
        weight: the matrix.
        kind: see the module.
        double: quantize the scales of nf4 as well, to 8 bits: 4.13 bits a weight instead of 4.5.
    """
    if kind == "int8":
        # Symmetric, without a zero point: -127 to 127, so that 0 stays 0 and a row needs a single scale.
        largest = weight.abs().amax(dim=1).float()
        codes = torch.round(weight.float() * (127 / _replace_zeros(largest))[:, None]).to(torch.int8)
        return QuantizedWeight(codes, _as_bytes(largest / 127), None)
    # bitsandbytes has no kernels for tensors without values; the memory estimate needs shapes alone.
    if weight.is_meta:
        return _without_values(weight, double)
    codes, largest = _nf4(weight)
    if not double:
        return QuantizedWeight(codes, _as_bytes(largest), None)
    # On the CPU and in float64, so that the mean does not depend on the device and on the number of threads.
    largest = largest.cpu()
    mean = largest.double().mean().float()
    # The scales are all positive; without their mean, 8 bits with a sign are used fully.
    small, state = import_bitsandbytes().functional.quantize_blockwise(largest - mean, blocksize=SCALES_BLOCK)
    scales = torch.cat([mean.reshape(1), state.absmax])
    return QuantizedWeight(codes, small.to(weight.device), _as_bytes(scales).to(weight.device))


def _without_values(weight: Tensor, double: bool) -> QuantizedWeight:
    """Return the tensors of nf4 for a weight on the device `meta`, of which the shapes alone are known."""
    blocks = math.ceil(weight.numel() / BLOCK)
    scale_scales = 4 * (1 + math.ceil(blocks / SCALES_BLOCK)) if double else None
    sizes = (math.ceil(weight.numel() / 2), blocks if double else 4 * blocks, scale_scales)
    stored = (None if size is None else torch.empty(size, dtype=torch.uint8, device="meta") for size in sizes)
    return QuantizedWeight(*stored)  # type: ignore[arg-type]  # a size for each field


def dequantize(stored: QuantizedWeight, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Return the matrix of the given shape and number format."""
    if stored.codes.dtype == torch.int8:
        # In place, each product is computed in float32 and rounded once.
        return stored.codes.to(dtype).mul_(stored.scales.view(torch.float32)[:, None])
    # The kernels of bitsandbytes write these formats; others, as float64, are cast afterwards.
    direct = dtype if dtype in (torch.bfloat16, torch.float16) else torch.float32
    functional = import_bitsandbytes().functional
    return functional.dequantize_4bit(stored.codes.view(-1, 1), _nf4_state(stored, shape, direct)).to(dtype)


def _nf4_state(stored: QuantizedWeight, shape: torch.Size, dtype: torch.dtype) -> Any:
    """Return what the kernels of bitsandbytes need beside the codes."""
    functional, device = import_bitsandbytes().functional, stored.codes.device
    values = _code_values("nf4", device)
    common = {"shape": shape, "dtype": dtype, "blocksize": BLOCK, "code": values, "quant_type": "nf4"}
    # QuantState is what bitsandbytes stores with its own Params4bit; here it is made anew from the stored bytes.
    if stored.scale_scales is None:
        return functional.QuantState(absmax=stored.scales.view(torch.float32), **common)
    scales = stored.scale_scales.view(torch.float32)
    dynamic = _code_values("dynamic", device)
    # The first of these scales is the mean, which was subtracted; the kernel adds it as `offset`.
    scales_state = functional.QuantState(absmax=scales[1:], code=dynamic, blocksize=SCALES_BLOCK, dtype=torch.float32)
    return functional.QuantState(absmax=stored.scales, offset=scales[0], state2=scales_state, **common)


def _nf4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the codes [ceil(N / 2)] uint8 of N weights, two in each, and the scale of each block, float32."""
    flat = weight.reshape(-1)
    on_cpu = flat.device.type == "cpu"
    chunk = _CHUNK * torch.get_num_threads() if on_cpu else _CHUNK_ON_GPU
    parts = [_nf4_codes(part) for part in flat.split(chunk)]
    codes, largest = (torch.cat(each) for each in zip(*parts, strict=True))
    # Each chunk is padded to whole blocks; only the last has padding, as chunks are multiples of a block.
    return codes[: (len(flat) + 1) // 2], largest


def _nf4_codes(weights: Tensor) -> tuple[Tensor, Tensor]:
    # (blocks, 64), with zeros after the last weight, which change no largest magnitude
    blocks = torch.nn.functional.pad(weights, (0, -len(weights) % BLOCK)).float().view(-1, BLOCK)
    largest = blocks.abs().amax(dim=1)
    scaled = (blocks / _replace_zeros(largest)[:, None]).view(-1)
    codes = torch.zeros(scaled.shape, dtype=torch.uint8, device=scaled.device)
    for border in _nf4_borders():  # faster than torch.bucketize, which searches for each weight
        # The code is the number of borders below the weight, 0 to 15.
        codes += scaled > border
    return codes[::2] << 4 | codes[1::2], largest  # the order of bitsandbytes: the first weight in the high bits


def _replace_zeros(largest: Tensor) -> Tensor:
    """Replace 0, the largest weight of a block or row of zeros, by a number that can be divided by."""
    return largest.clamp_min(torch.finfo(torch.float32).tiny)


def _as_bytes(numbers: Tensor) -> Tensor:
    """View float32 numbers as bytes, which `module.to(torch.bfloat16)` does not convert."""
    return numbers.contiguous().view(torch.uint8)


@lru_cache(maxsize=1)
def _nf4_borders() -> list[float]:
    """Return the 15 borders between the 16 values of nf4."""
    values = _code_values("nf4", torch.device("cpu"))
    return ((values[1:] + values[:-1]) / 2).tolist()


@lru_cache(maxsize=32)
def _code_values(kind: Literal["nf4", "dynamic"], device: torch.device) -> Tensor:
    """Return the values of the codes, in rising order: [16] of nf4, [256] of scales in double quantization."""
    functional = import_bitsandbytes().functional
    if kind == "nf4":
        return functional.get_4bit_type("nf4", device=device)
    return functional.create_dynamic_map().to(device)
