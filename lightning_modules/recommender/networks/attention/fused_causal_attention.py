"""Computes causal attention with dropout and optional relations that depend on the time between two events.

With T + 1 different intervals the relation terms need no [L, L, D] tensor (D: size of a head):

- keys: `q_i . r^K_{R_ij} = S[i, R_ij]` with `S = q r^K^T` of [L, T + 1]: one product and a gather;
- values: `sum_j a_ij r^V_{R_ij} = (W r^V)_i`, where `W[i, t]` is the attention of i to all events at interval t:
  a scatter-add and one product.

The result is exact but for the order of sums. The computation is split into tiles (tiles.py). Forward and
backward are written by hand: autograd would keep every tile's scores, masks and gathered terms, while this keeps the
probabilities and one byte per element for dropout.

On CUDA a scatter-add uses atomics, so sums may differ in the last bit from run to run. Under
`torch.use_deterministic_algorithms(True)` torch uses its slower, sorted kernel.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.recommender.networks.attention.tiles import Tile, tiles
from lightning_modules.recommender.networks.counter_dropout import keep_mask


class Relations(NamedTuple):
    """Terms that attention adds for the interval between two events."""

    intervals: Tensor  # [B, L, L] int64 in [0, T]
    keys: Tensor  # [H, T + 1, D]
    values: Tensor  # [H, T + 1, D]


def causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
    relations: Relations | None = None,
    mask_keys: Tensor | None = None,
) -> Tensor:
    """Compute the softmax over j <= i of `q_i . (k_j + r^K_ij) / sqrt(D)`, dropped out, times `v_j + r^V_ij`.

    Args:
        query: [B, H, L, D]. Products have its dtype; the softmax and the sums over intervals have at least float32.
        key: [B, H, L, D] of the same dtype.
        value: [B, H, L, D] of the same dtype.
        dropout: probability of dropping an attention weight; the caller passes 0 in evaluation.
        relations: terms of the intervals between events, or None.
        mask_keys: [B] int64 keys of the rows' masks, see `keep_mask`.

    Returns:
        [B, H, L, D], differentiable once.
    """
    intervals = keys = values = None
    if relations is not None:
        intervals, keys, values = relations.intervals, relations.keys.to(query.dtype), relations.values.to(query.dtype)
    return _CausalAttention.apply(query, key, value, keys, values, intervals, dropout, mask_keys)


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        relation_keys: Tensor | None,
        relation_values: Tensor | None,
        intervals: Tensor | None,
        dropout: float,
        mask_keys: Tensor | None,
    ) -> Tensor:
        mixed = torch.empty_like(query, memory_format=torch.contiguous_format)
        # Probabilities of each tile, and with dropout its mask: the backward pass needs both.
        saved_tiles: list[Tensor] = []
        scale = 1.0
        with torch.autocast(query.device.type, enabled=False):
            query = query * query.shape[-1] ** -0.5
            for tile in tiles(query):
                rows, queries, keys = tile
                q = query[rows, :, queries]
                scores = q @ key[rows, :, keys].mT
                near = _tile_intervals(intervals, tile, query.shape[1])
                if near is not None:
                    assert relation_keys is not None, "relations have intervals, keys and values"
                    # q_i . r^K of all T + 1 intervals, then a look-up for each pair: no [B, H, L, L, D] tensor.
                    scores += (q @ relation_keys.mT).gather(-1, near)
                probabilities = _causal_softmax(scores, queries.start)
                weights = probabilities
                saved_tiles.append(probabilities)
                if dropout:
                    row_keys = None if mask_keys is None else mask_keys[rows]
                    mask, scale = keep_mask(scores.shape, dropout, scores.device, row_keys, queries.start)
                    saved_tiles.append(mask)
                    weights = probabilities * mask  # of 0 and 1; `mixed` is scaled by 1 / P(kept) at the end
                result = weights.to(q.dtype) @ value[rows, :, keys]
                if near is not None:
                    assert relation_values is not None, "relations have intervals, keys and values"
                    # Keys at the same interval share r^V, so their weights are added before the product.
                    result += _sum_by_interval(near, weights, relation_values.shape[1]).to(q.dtype) @ relation_values
                mixed[rows, :, queries] = result
            mixed *= scale
        ctx.save_for_backward(query, key, value, mixed, relation_keys, relation_values, intervals, *saved_tiles)
        ctx.scale, ctx.masked = scale, dropout > 0
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mixed, relation_keys, relation_values, intervals, *saved_tiles = ctx.saved_tensors
        grad_query, grad_key, grad_value = (
            torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)
        )
        tables = () if intervals is None else (relation_keys, relation_values)
        # The tables' gradients are sums over all rows and queries, so they are added in float32 at least.
        grad_tables = [torch.zeros_like(table, dtype=_at_least_float32(table)) for table in tables]
        # The softmax's gradient needs sum_j weight_ij * d weight_ij, which is this sum over D instead of L.
        correction = (grad.to(_at_least_float32(grad)) * mixed).sum(-1, keepdim=True)
        # The factor follows `correction`, because `mixed` has it already.
        grad = grad * ctx.scale
        step = 2 if ctx.masked else 1
        for index, tile in enumerate(tiles(query)):
            rows, queries, keys = tile
            probabilities, mask = saved_tiles[step * index], saved_tiles[step * index + 1] if ctx.masked else None
            q, k, g = query[rows, :, queries], key[rows, :, keys], grad[rows, :, queries]
            weights = probabilities if mask is None else probabilities * mask
            # A key is in the tiles of all later queries, so its gradient is added up. A query is in one tile.
            grad_value[rows, :, keys] += weights.to(g.dtype).mT @ g
            grad_scores = g @ value[rows, :, keys].mT
            near = _tile_intervals(intervals, tile, query.shape[1])
            if near is not None:
                grad_scores += (g @ relation_values.mT).gather(-1, near)
                mass = _sum_by_interval(near, weights, relation_values.shape[1]).to(g.dtype)
                grad_tables[1] += torch.einsum("bhqt,bhqd->htd", mass, g)
            grad_scores = grad_scores.to(probabilities.dtype)
            if mask is not None:
                # A dropped weight passes no gradient to its score.
                grad_scores *= mask
            # Softmax p of scores s: dL/ds_j = p_j (dL/dp_j - sum_k p_k dL/dp_k).
            grad_scores.sub_(correction[rows, :, queries]).mul_(probabilities)
            narrow = grad_scores.to(q.dtype)
            part = narrow @ k
            grad_key[rows, :, keys] += narrow.mT @ q
            if near is not None:
                by_interval = _sum_by_interval(near, grad_scores, relation_keys.shape[1]).to(q.dtype)
                part += by_interval @ relation_keys
                grad_tables[0] += torch.einsum("bhqt,bhqd->htd", by_interval, q)
            grad_query[rows, :, queries] = part
        # The saved query is scaled by 1 / sqrt(D) already, so only its own gradient lacks the factor.
        grad_query *= query.shape[-1] ** -0.5
        table_grads: list[Tensor | None] = [grad_table.to(query.dtype) for grad_table in grad_tables]
        return grad_query, grad_key, grad_value, *(table_grads or [None, None]), None, None, None


def _tile_intervals(intervals: Tensor | None, tile: Tile, heads: int) -> Tensor | None:
    """Return the tile's intervals [rows, H, queries, keys] without a copy."""
    if intervals is None:
        return None
    return intervals[tile.rows, tile.queries, tile.keys].unsqueeze(1).expand(-1, heads, -1, -1)


def _causal_softmax(scores: Tensor, first_query: int) -> Tensor:
    queries, keys = scores.shape[-2:]
    # Row i of the tile is query first_query + i; later keys are hidden from it.
    bias = scores.new_full((queries, keys), -torch.inf).triu_(first_query + 1)
    return torch.softmax(scores.add_(bias), -1, dtype=_at_least_float32(scores))


def _sum_by_interval(near: Tensor, weights: Tensor, intervals: int) -> Tensor:
    """Sum weights [rows, H, queries, keys] over keys at the same interval: [rows, H, queries, T + 1]."""
    return weights.new_zeros(*weights.shape[:-1], intervals).scatter_add_(-1, near, weights)


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
