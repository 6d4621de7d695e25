"""Tests time-interval attention against its definition, with dropout and half precision."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations, causal_attention
from lightning_modules.recommender.networks.attention.standard import StandardAttention
from lightning_modules.recommender.networks.attention.time_interval import (
    TimeIntervalAttention,
    TimeTables,
    time_intervals,
)
from lightning_modules.recommender.networks.counter_dropout import Dropout, keep_mask
from tests.tiers import slow

B, L, D, T = 3, 7, 4, 5


def naive_attention(query, key, value, relations):
    """The definition, with its two [B, H, L, L, D] tensors."""
    intervals, keys, values = relations
    relation_keys, relation_values = (table[:, intervals].transpose(0, 1) for table in (keys, values))
    scores = (query.unsqueeze(3) * (key.unsqueeze(2) + relation_keys)).sum(-1) / query.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return (weights.unsqueeze(-1) * (value.unsqueeze(2) + relation_values)).sum(3)


def make(heads=2, dtype=torch.float64, length=L):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype, requires_grad=True)

    times = torch.randint(0, 9, (B, length), generator=generator).cumsum(1)
    times[1, length // 2 :] = times[1, length // 2 - 1 : length // 2]  # padding repeats the last time
    intervals = time_intervals(times, torch.tensor([1, 3, 100]), T)
    qkv = [normal(B, heads, length, D) for _ in range(3)]
    return *qkv, Relations(intervals, normal(heads, T + 1, D), normal(heads, T + 1, D))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_cheap_form_equals_the_definition(tiles, heads, dtype, tolerance):
    query, key, value, relations = make(heads, dtype)
    assert relations.intervals.max() == T  # some are clipped
    inputs = query, key, value, relations.keys, relations.values
    actual, expected = (
        causal_attention(query, key, value, 0.0, relations),
        naive_attention(query, key, value, relations),
    )
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
    weight = torch.randn(actual.shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad((actual * weight).sum(), inputs)
    wanted = torch.autograd.grad((expected * weight).sum(), inputs)
    torch.testing.assert_close(gradients, wanted, atol=tolerance, rtol=tolerance)


def test_attention_without_relations_equals_torchs(tiles):
    query, key, value, _ = make()
    actual = causal_attention(query, key, value)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(actual, expected)
    weight = torch.randn(actual.shape, dtype=actual.dtype)
    torch.testing.assert_close(
        torch.autograd.grad((actual * weight).sum(), (query, key, value)),
        torch.autograd.grad((expected * weight).sum(), (query, key, value)),
    )


@pytest.mark.parametrize("timed", [slow(False), True])
def test_gradients_with_dropout_pass_gradcheck(tiles, timed):
    *qkv, relations = make(length=5)

    def attend(query, key, value, keys, values):
        torch.manual_seed(3)  # the same mask at every call
        return causal_attention(query, key, value, 0.4, Relations(relations.intervals, keys, values) if timed else None)

    assert torch.autograd.gradcheck(attend, (*qkv, relations.keys, relations.values))


def test_dropout_keeps_the_expectation():
    query, key, value, relations = (x.detach() if isinstance(x, torch.Tensor) else x for x in make())
    torch.manual_seed(0)
    mean = sum(causal_attention(query, key, value, 0.3, relations) for _ in range(3000)) / 3000
    expected = causal_attention(query, key, value, 0.0, relations)
    torch.testing.assert_close(mean, expected, atol=0.15, rtol=0.0)


@pytest.mark.parametrize("timed", [False, True])
def test_attention_in_bfloat16_stays_near_float32(timed):
    query, key, value, relations = make(dtype=torch.float32)
    relations = relations if timed else None
    attended = causal_attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), 0.0, relations)
    assert attended.dtype == torch.bfloat16
    torch.testing.assert_close(
        attended.float(), causal_attention(query, key, value, 0.0, relations), atol=0.1, rtol=0.05
    )


def test_time_intervals_equal_those_by_hand():
    times = torch.tensor([[10, 10, 17, 20, 1000], [5, 6, 7, 8, 9]])
    intervals = time_intervals(times, torch.tensor([7, 1]), 3)
    # First row in units of 7 s since its first event: 0, 0, 1, 1.43 -> 1, 141.4 -> 141.
    assert intervals[0].tolist() == [
        [0, 0, 1, 1, 3],
        [0, 0, 1, 1, 3],
        [1, 1, 0, 0, 3],
        [1, 1, 0, 0, 3],
        [3, 3, 3, 3, 0],
    ]
    assert intervals[1, 0].tolist() == [0, 1, 2, 3, 3]
    assert time_intervals(torch.tensor([[0, 5, 14]]), torch.tensor([10]), 9)[0, 0].tolist() == [0, 1, 1]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=6), st.integers(1, 2**62), st.integers(1, 2**40))
def test_intervals_are_whole_number_arithmetic_without_overflow(times, scale, span):
    times = sorted(times)
    intervals = time_intervals(torch.tensor([times]), torch.tensor([scale]), span)[0].tolist()
    units = [(2 * (time - times[0]) + scale) // (2 * scale) for time in times]
    assert intervals == [[min(abs(a - b), span) for b in units] for a in units]


@pytest.mark.parametrize("training", [False, True])
def test_standard_attention_equals_torchs_in_training_and_evaluation(training):
    torch.manual_seed(0)
    attention = StandardAttention(8, 2, 0.0).train(training)
    reference = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    reference.load_state_dict(
        {
            "in_proj_weight": attention.projection.weight,
            "in_proj_bias": attention.projection.bias,
            "out_proj.weight": attention.output.weight,
            "out_proj.bias": attention.output.bias,
        }
    )
    x = torch.randn(B, L, 8)
    hidden = torch.ones(L, L, dtype=torch.bool).triu(1)
    torch.testing.assert_close(attention(x), reference(x, x, x, attn_mask=hidden, need_weights=False)[0])


@pytest.mark.parametrize("with_request", [False, True])
@pytest.mark.parametrize("buckets", ["linear", "log"])
def test_time_interval_attention_adds_positions_to_keys_and_values(buckets, with_request):
    torch.manual_seed(0)
    heads, hidden = 2, 8
    attention = TimeIntervalAttention(hidden, heads, 0.5).eval()
    tables = TimeTables(L, T, hidden, heads, 0.5, buckets).eval()
    x, times = torch.randn(B, L, hidden, requires_grad=True), torch.randint(0, 9, (B, L)).cumsum(1)
    times[0, 3:] += 3 * 365 * 86_400
    queries = torch.cat((times[:, 1:], times[:, -1:] + 11), 1) if with_request else times
    scale = torch.ones(B, dtype=torch.int64)
    context = tables(torch.arange(L).expand(B, L), times, scale, *[queries] * with_request)
    query, key, value = attention.projection(x).chunk(3, -1)
    key, value = key + tables.position_keys.weight, value + tables.position_values.weight
    query, key, value = (part.reshape(B, L, heads, -1).transpose(1, 2) for part in (query, key, value))
    split = [t.weight.unflatten(1, (heads, -1)).transpose(0, 1) for t in (tables.interval_keys, tables.interval_values)]
    elapsed = (queries[:, :, None] - times[:, None]).numpy()
    if buckets == "log":
        rows = np.clip(np.floor(np.log(np.maximum(elapsed, 1)) / 0.301), 0, 64).astype(np.int64)
    else:
        rows = np.clip(np.abs(elapsed), 0, T)
    later = np.triu(np.ones((L, L), np.bool_), 1)
    found_rows = context.relations.intervals.numpy()
    assert np.array_equal(np.where(later, 0, rows), np.where(later, 0, found_rows))
    assert found_rows.max() == rows.max() > 4
    mixed = naive_attention(query, key, value, Relations(torch.from_numpy(rows), *split))
    expected = attention.output(mixed.transpose(1, 2).reshape(B, L, hidden))
    actual = attention(x, context)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    inputs = x, *attention.parameters(), *tables.parameters()
    weight = torch.randn(actual.shape)
    gradients = torch.autograd.grad((actual * weight).sum(), inputs)
    wanted = torch.autograd.grad((expected * weight).sum(), inputs)
    torch.testing.assert_close(gradients, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.9])
def test_dropout_drops_the_right_share_and_scales_by_it(p):
    torch.manual_seed(0)
    x = torch.ones(301, 1003, requires_grad=True)
    dropout = Dropout(p)
    y = dropout(x)
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.005)
    assert y.mean().item() == pytest.approx(1, abs=0.02)
    assert y.amax().item() == pytest.approx(1 / (1 - p), rel=1e-3)
    # All four lanes of a draw, and so every column, are dropped alike.
    assert (y.detach().flatten()[: 4 * 75000].view(-1, 4) == 0).float().mean(0).numpy() == pytest.approx(p, abs=0.01)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_comes_from_torchs_generator():
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(keep_mask(torch.Size((5, 7)), 0.5, torch.device("cpu"))[0])
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_impossible_dropout_is_refused(p):
    with pytest.raises(ValueError, match="dropout must lie in"):
        Dropout(p)
