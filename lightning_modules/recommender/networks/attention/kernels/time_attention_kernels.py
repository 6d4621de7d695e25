"""Implements the Triton kernels of time-interval attention: a program computes some queries or keys of a head.

All kernels recompute the probabilities of a tile from the queries, the keys and the logarithm of the softmax's
denominator, as FlashAttention-2 does (Dao, arXiv 2307.08691), so that no [L, L] matrix is written. The terms of
intervals are gathers from products [L, T + 1], and sums over the keys at the same interval are atomic additions to
rows that one program owns. The sums of a row have no fixed order.

Tensors are contiguous. N is B * H, D the width of a head, T1 the number of intervals.
"""

import triton
import triton.language as tl


@triton.jit
def _dropout_mask(keys, position_bits, head_row, batch, rows, columns, row_stride, dropped):
    """Return the dropout mask of a tile: the bits of `keyed_bits`, of which 16 decide an element."""
    key = tl.load(keys + batch)
    # A 64-bit number per four elements of a row, as on the CPU. The factors are the constants of `keyed_bits` as int64.
    offsets = head_row + rows[:, None] * row_stride + columns[None, :] // 4
    bits = tl.load(position_bits + offsets) ^ key
    bits *= -4658895280553007687
    bits ^= bits >> 32
    bits *= -7723592293110705685
    lane = (bits >> ((columns[None, :] % 4) * 16)).to(tl.int16)  # the 16 bits of this element, as a signed number
    return lane >= dropped - 32768


@triton.jit
def _scores(query, key, gathered, intervals, rows, columns, length, T1: tl.constexpr, PRECISION: tl.constexpr):
    """Return scores [M, N] of a tile, -inf where a key comes after its query, and the offsets of their intervals."""
    causal = (columns[None, :] <= rows[:, None]) & (rows[:, None] < length)
    interval = tl.load(intervals + rows[:, None] * length + columns[None, :], mask=causal, other=0)
    offsets = rows[:, None] * T1 + interval
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION)
    scores += tl.load(gathered + offsets, mask=causal, other=0.0).to(tl.float32)
    return tl.where(causal, scores, float("-inf")), causal, offsets


@triton.jit
def mix_values(
    query, key, value, products, intervals, mask_keys, mask_bits,
    mixed, mass, log_sums,
    heads, length, head_stride, row_stride, dropped,
    T1: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the mixed values of M queries, their attention by interval and the logarithms of their denominators.

    Inputs are query [N, L, D], scaled; key and value [N, L, D]; products [N, L, T1] of queries and relation keys;
    intervals [B, L, L]; mask_keys [B] int64 and mask_bits [H, L', L' / 4] int64 of dropout.
    Outputs are mixed [N, L, D], without the scale of dropout; mass [N, L, T1] float32, zeros before; and log_sums
    [N, L] float32.
    """
    block, row_of_heads = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = row_of_heads // heads, row_of_heads % heads
    rows, widths = block * M + tl.arange(0, M), tl.arange(0, WIDTH)
    is_query = (rows[:, None] < length) & (widths[None, :] < D)
    at = row_of_heads * length * D
    products += row_of_heads * length * T1
    mass += row_of_heads * length * T1
    intervals += batch * length * length
    q = tl.load(query + at + rows[:, None] * D + widths[None, :], mask=is_query, other=0.0)

    # First pass: the softmax's denominator with a running maximum, as in FlashAttention. Keys after the last query of
    # the program are never visited.
    # Finite, because -inf minus -inf is NaN for the rows beyond the history's length.
    largest = tl.full([M], -1e30, tl.float32)
    total = tl.zeros([M], tl.float32)
    for start in range(0, tl.minimum(length, (block + 1) * M), N):
        columns = start + tl.arange(0, N)
        is_key = (columns[:, None] < length) & (widths[None, :] < D)
        k = tl.load(key + at + columns[:, None] * D + widths[None, :], mask=is_key, other=0.0)
        scores, causal, offsets = _scores(q, k, products, intervals, rows, columns, length, T1, PRECISION)
        higher = tl.maximum(largest, tl.max(scores, 1))
        # The sum so far was relative to the old maximum.
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(scores - higher[:, None]), 1)
        largest = higher
    log_sum = largest + tl.log(tl.maximum(total, 1e-30))
    tl.store(log_sums + row_of_heads * length + rows, log_sum, mask=rows < length)

    # A second pass has the final probabilities, whose sums by interval need no correction for a larger maximum.
    result = tl.zeros([M, WIDTH], tl.float32)
    for start in range(0, tl.minimum(length, (block + 1) * M), N):
        columns = start + tl.arange(0, N)
        is_key = (columns[:, None] < length) & (widths[None, :] < D)
        k = tl.load(key + at + columns[:, None] * D + widths[None, :], mask=is_key, other=0.0)
        v = tl.load(value + at + columns[:, None] * D + widths[None, :], mask=is_key, other=0.0)
        scores, causal, offsets = _scores(q, k, products, intervals, rows, columns, length, T1, PRECISION)
        weights = tl.exp(scores - log_sum[:, None])
        if DROPOUT:
            mask = _dropout_mask(mask_keys, mask_bits, head * head_stride, batch, rows, columns, row_stride, dropped)
            weights = tl.where(mask, weights, 0.0)
        result += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        tl.atomic_add(mass + offsets, weights, mask=causal)
    tl.store(mixed + at + rows[:, None] * D + widths[None, :], result.to(mixed.dtype.element_ty), mask=is_query)


@triton.jit
def differentiate_queries(
    query, key, value, gradient, products, gradient_products, intervals, mask_keys, mask_bits,
    log_sums, corrections,
    grad_query, grad_mass,
    heads, length, head_stride, row_stride, dropped,
    T1: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of M queries by keys, and the gradients of their scores summed by interval.

    Inputs beside those of `mix_values` are gradient [N, L, D] of the mixed values; gradient_products [N, L, T1], of it
    and relation values; and corrections [N, L] float32, the sums over D of gradient times result.
    Outputs are grad_query [N, L, D] float32 and grad_mass [N, L, T1] float32, zeros before.
    """
    block, row_of_heads = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = row_of_heads // heads, row_of_heads % heads
    rows, widths = block * M + tl.arange(0, M), tl.arange(0, WIDTH)
    is_query = (rows[:, None] < length) & (widths[None, :] < D)
    at = row_of_heads * length * D
    products += row_of_heads * length * T1
    gradient_products += row_of_heads * length * T1
    grad_mass += row_of_heads * length * T1
    intervals += batch * length * length
    q = tl.load(query + at + rows[:, None] * D + widths[None, :], mask=is_query, other=0.0)
    g = tl.load(gradient + at + rows[:, None] * D + widths[None, :], mask=is_query, other=0.0)
    log_sum = tl.load(log_sums + row_of_heads * length + rows, mask=rows < length, other=0.0)
    correction = tl.load(corrections + row_of_heads * length + rows, mask=rows < length, other=0.0)

    result = tl.zeros([M, WIDTH], tl.float32)
    for start in range(0, tl.minimum(length, (block + 1) * M), N):
        columns = start + tl.arange(0, N)
        is_key = (columns[:, None] < length) & (widths[None, :] < D)
        k = tl.load(key + at + columns[:, None] * D + widths[None, :], mask=is_key, other=0.0)
        v = tl.load(value + at + columns[:, None] * D + widths[None, :], mask=is_key, other=0.0)
        scores, causal, offsets = _scores(q, k, products, intervals, rows, columns, length, T1, PRECISION)
        probabilities = tl.exp(scores - log_sum[:, None])
        by_weight = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        by_weight += tl.load(gradient_products + offsets, mask=causal, other=0.0).to(tl.float32)
        if DROPOUT:
            mask = _dropout_mask(mask_keys, mask_bits, head * head_stride, batch, rows, columns, row_stride, dropped)
            by_weight = tl.where(mask, by_weight, 0.0)
        # Softmax: dL/ds = p (dL/dp - sum p dL/dp); the sum is `correction`, computed by the caller.
        by_score = probabilities * (by_weight - correction[:, None])
        result += tl.dot(by_score.to(k.dtype), k, input_precision=PRECISION)
        tl.atomic_add(grad_mass + offsets, by_score, mask=causal)
    tl.store(grad_query + at + rows[:, None] * D + widths[None, :], result, mask=is_query)


@triton.jit
def differentiate_keys(
    query, key, value, gradient, products, gradient_products, intervals, mask_keys, mask_bits,
    log_sums, corrections,
    grad_key, grad_value,
    heads, length, head_stride, row_stride, dropped,
    T1: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of N keys and values, [N, L, D] each. For inputs see `differentiate_queries`."""
    block, row_of_heads = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = row_of_heads // heads, row_of_heads % heads
    columns, widths = block * N + tl.arange(0, N), tl.arange(0, WIDTH)
    is_key = (columns[:, None] < length) & (widths[None, :] < D)
    at = row_of_heads * length * D
    products += row_of_heads * length * T1
    gradient_products += row_of_heads * length * T1
    intervals += batch * length * length
    k = tl.load(key + at + columns[:, None] * D + widths[None, :], mask=is_key, other=0.0)
    v = tl.load(value + at + columns[:, None] * D + widths[None, :], mask=is_key, other=0.0)

    by_key = tl.zeros([N, WIDTH], tl.float32)
    by_value = tl.zeros([N, WIDTH], tl.float32)
    # Queries from the first key on; earlier queries do not see these keys.
    for start in range((block * N) // M * M, length, M):
        rows = start + tl.arange(0, M)
        is_query = (rows[:, None] < length) & (widths[None, :] < D)
        q = tl.load(query + at + rows[:, None] * D + widths[None, :], mask=is_query, other=0.0)
        g = tl.load(gradient + at + rows[:, None] * D + widths[None, :], mask=is_query, other=0.0)
        log_sum = tl.load(log_sums + row_of_heads * length + rows, mask=rows < length, other=0.0)
        correction = tl.load(corrections + row_of_heads * length + rows, mask=rows < length, other=0.0)
        scores, causal, offsets = _scores(q, k, products, intervals, rows, columns, length, T1, PRECISION)
        probabilities = tl.exp(scores - log_sum[:, None])
        weights = probabilities
        by_weight = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        by_weight += tl.load(gradient_products + offsets, mask=causal, other=0.0).to(tl.float32)
        if DROPOUT:
            mask = _dropout_mask(mask_keys, mask_bits, head * head_stride, batch, rows, columns, row_stride, dropped)
            weights = tl.where(mask, weights, 0.0)
            by_weight = tl.where(mask, by_weight, 0.0)
        by_value += tl.dot(tl.trans(weights.to(g.dtype)), g, input_precision=PRECISION)
        by_score = probabilities * (by_weight - correction[:, None])
        by_key += tl.dot(tl.trans(by_score.to(q.dtype)), q, input_precision=PRECISION)
    tl.store(grad_key + at + columns[:, None] * D + widths[None, :], by_key.to(grad_key.dtype.element_ty), mask=is_key)
    value_offsets = at + columns[:, None] * D + widths[None, :]
    tl.store(grad_value + value_offsets, by_value.to(grad_value.dtype.element_ty), mask=is_key)
