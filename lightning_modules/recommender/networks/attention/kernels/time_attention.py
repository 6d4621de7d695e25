"""Computes time-interval attention in Triton: `causal_attention` without a matrix of [L, L] in memory.

Beside its inputs and outputs it holds products and sums of [B, H, L, T + 1], where the form of plain torch holds
the probabilities [B, H, L, L], their masks and several matrices of that size in the backward pass.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations
from lightning_modules.recommender.networks.attention.kernels.time_attention_kernels import (
    differentiate_keys,
    differentiate_queries,
    mix_values,
)
from lightning_modules.recommender.networks.counter_dropout import dropped_levels
from lightning_modules.recommender.networks.dropout_keys import position_bits

_TILES = {64: 64, 128: 32}
"""{width of a head: queries and keys of a program's tile} in 16 bits, at most; half as many in 32 bits."""
_STAGES = 2
"""Tiles that are loaded ahead. With more, a program needs over 99 KB of shared memory, which some GPUs lack."""


def time_interval_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float,
    relations: Relations,
    mask_keys: Tensor | None = None,
) -> Tensor:
    """Compute `causal_attention` of fused_causal_attention.py with relations.

    Scores, softmax and sums have float32; products of matrices have the dtype of the query, and float32 ones the
    precision of `torch.get_float32_matmul_precision`. Sums by interval have no fixed order.

    Args:
        query: [B, H, L, D].
        key: [B, H, L, D] of the same dtype.
        value: [B, H, L, D] of the same dtype.
        dropout: probability of dropping an attention weight; the caller passes 0 in evaluation.
        relations: terms of the intervals between events.
        mask_keys: [B] int64 keys of the rows' masks, which then equal `keep_mask`'s; None: drawn from torch's
            generator.

    Returns:
        [B, H, L, D], differentiable once.
    """
    keys, values = relations.keys.to(query.dtype), relations.values.to(query.dtype)
    # Drawn here and saved, because the backward kernels recompute the masks from the keys.
    if dropout and mask_keys is None:
        mask_keys = torch.empty(len(query), dtype=torch.int64, device=query.device).random_(-(2**63), None)
    return _TimeIntervalAttention.apply(query, key, value, keys, values, relations.intervals, dropout, mask_keys)


class _TimeIntervalAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        relation_keys: Tensor,
        relation_values: Tensor,
        intervals: Tensor,
        dropout: float,
        mask_keys: Tensor | None,
    ) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            query = (query * query.shape[-1] ** -0.5).contiguous()
            key, value = key.contiguous(), value.contiguous()
            # The kernels read each interval four times.
            intervals = intervals.to(torch.int16 if relation_keys.shape[1] <= 1 << 15 else torch.int32)
            launch = _Launch(query, relation_keys.shape[1], dropout, mask_keys)
            # q_i . r^K of all intervals: [B, H, L, T + 1]. The kernel looks up a term for each pair.
            products = query @ relation_keys.mT
            mass = torch.zeros_like(products, dtype=torch.float32)
            mixed, log_sums = torch.empty_like(query), torch.empty_like(query[..., 0], dtype=torch.float32)
            launch(mix_values, query, key, value, products, intervals, *launch.masks, mixed, mass, log_sums)
            mass = mass.to(query.dtype)
            # The kernel adds a_ij v_j. The terms a_ij r^V_ij are one product, after attention is summed by interval.
            mixed = (mixed + mass @ relation_values) * launch.scale
        ctx.save_for_backward(
            query, key, value, products, mass, mixed, log_sums, relation_keys, relation_values, intervals, mask_keys
        )
        ctx.dropout = dropout
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, products, mass, mixed, log_sums, *others = ctx.saved_tensors
        relation_keys, relation_values, intervals, mask_keys = others
        launch = _Launch(query, relation_keys.shape[1], ctx.dropout, mask_keys)
        # The softmax's gradient needs sum_j weight_ij * d weight_ij, which is this sum over D instead of L.
        corrections = (grad.float() * mixed).sum(-1)
        grad = (grad * launch.scale).to(query.dtype).contiguous()
        grad_products = grad @ relation_values.mT
        inputs = query, key, value, grad, products, grad_products, intervals, *launch.masks, log_sums, corrections

        # The terms of r^K are added to the queries' gradient after the kernel, so it stays in float32 until then.
        grad_query = torch.empty_like(query, dtype=torch.float32)
        # Zeros, because the kernel adds to it by atomics.
        grad_mass = torch.zeros_like(products, dtype=torch.float32)
        launch(differentiate_queries, *inputs, grad_query, grad_mass)
        grad_key, grad_value = torch.empty_like(key), torch.empty_like(value)
        launch(differentiate_keys, *inputs, grad_key, grad_value)

        by_interval = grad_mass.to(query.dtype)
        # The saved query is scaled by 1 / sqrt(D) already, so only its own gradient lacks the factor.
        grad_query = (grad_query + by_interval @ relation_keys) * query.shape[-1] ** -0.5
        grad_relation_keys = torch.einsum("bhqt,bhqd->htd", by_interval, query)
        grad_relation_values = torch.einsum("bhqt,bhqd->htd", mass, grad)
        return (
            grad_query.to(query.dtype),
            grad_key,
            grad_value,
            grad_relation_keys,
            grad_relation_values,
            None,
            None,
            None,
        )


class _Launch:
    """Starts kernels for the heads and tiles of a query [B, H, L, D] with the same sizes and masks.

    Attributes:
        masks: keys and bits of dropout's masks, unused without dropout.
        scale: 1 / P(kept).
    """

    def __init__(self, query: Tensor, intervals: int, dropout: float, mask_keys: Tensor | None) -> None:
        batch, heads, length, width = query.shape
        self.tile = _tile_size(width, query.element_size())
        self.grid = (triton.cdiv(length, self.tile), batch * heads)
        dropped, self.scale = dropped_levels(dropout)
        # A kernel's arguments are tensors also without dropout; the query stands in and is not read.
        self.masks: tuple[Tensor, Tensor] = (query, query)
        strides: tuple[int, ...] = 0, 0
        if dropout:
            assert mask_keys is not None, "dropout has keys"
            dropout_bits = position_bits(heads, length, -(-length // 4)).to(query.device)
            self.masks, strides = (mask_keys, dropout_bits), dropout_bits.stride()[:2]
        self.sizes = heads, length, *strides, dropped
        # tl.dot needs at least 16 columns and a power of two; the kernels mask the columns from D on.
        self.constants = {"T1": intervals, "D": width, "WIDTH": max(16, triton.next_power_of_2(width))}
        self.constants |= {"M": self.tile, "N": self.tile, "DROPOUT": dropout > 0}
        exact = torch.get_float32_matmul_precision() == "highest"
        self.precision = "ieee" if exact else "tf32"

    def __call__(self, kernel: Any, *tensors: Tensor) -> None:
        kernel[self.grid](*tensors, *self.sizes, **self.constants, PRECISION=self.precision, num_stages=_STAGES)


def _tile_size(width: int, element_size: int) -> int:
    tile = next((tile for widest, tile in _TILES.items() if width <= widest), 16)
    return max(16, tile // (element_size // 2))
