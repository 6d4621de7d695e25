"""Tests HSTU against the paper's formula, tiled or for a single query, in values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender.export.onnx_graph import pointwise_attention as untiled_attention
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.fused_pointwise_attention import Biases, pointwise_attention
from lightning_modules.recommender.networks.attention.hstu import HSTUAttention
from lightning_modules.recommender.networks.attention.last_query import last_pointwise_attention
from lightning_modules.recommender.networks.last_position import select_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.networks.time_buckets import LAST_BUCKET, time_buckets
from tests.support.recommender.attention_inputs import (
    LONGEST,
    D,
    L,
    compare_with_paper,
    drawn_layer,
    gradients,
    make,
    silu,
)


def naive_attention(query, key, value, biases):
    """Equation 2, row by row and position by position."""
    distances, times, buckets = biases
    rows = []
    for row in range(len(query)):
        positions = []
        for i in range(query.shape[2]):
            scores = torch.einsum("hd,hjd->hj", query[row, :, i], key[row, :, : i + 1])
            scores = scores + distances[i - torch.arange(i + 1)] + times[buckets[row, i, : i + 1]]
            positions.append(torch.einsum("hj,hjd->hd", silu(scores), value[row, :, : i + 1]))
        rows.append(torch.stack(positions, 1))
    return torch.stack(rows)


def inputs_of(query, key, value, biases):
    return query, key, value, biases.distances, biases.times


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_tiles_equal_the_definition(tiles, heads, dtype, tolerance):
    arguments = make(heads, dtype)
    assert len(arguments[3].buckets.unique()) > 10
    actual, expected = pointwise_attention(*arguments), naive_attention(*arguments)
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
    inputs = inputs_of(*arguments)
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs), atol=tolerance, rtol=tolerance)


def test_gradients_of_attention_pass_gradcheck(tiles):
    *qkv, biases = make(length=4, longest=4)

    def attend(query, key, value, distances, times):
        return pointwise_attention(query, key, value, Biases(distances, times, biases.buckets))

    assert torch.autograd.gradcheck(attend, (*qkv, biases.distances, biases.times))


def test_tiles_of_200_events_equal_the_whole_matrix():
    arguments = make(length=200, longest=200)
    actual, expected = pointwise_attention(*arguments), untiled_attention(*arguments)
    torch.testing.assert_close(actual, expected)
    inputs = inputs_of(*arguments)
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs))


def test_attention_of_one_query_has_the_gradients_of_attention_of_all():
    query, key, value, biases = arguments = make()
    last = torch.tensor([0, 4, 6])
    whole = select_position(pointwise_attention(*arguments).transpose(1, 2), last)
    one = last_pointwise_attention(
        select_position(query.transpose(1, 2), last).transpose(1, 2), key, value, last, biases
    ).transpose(1, 2)
    torch.testing.assert_close(one, whole)
    inputs = inputs_of(*arguments)
    torch.testing.assert_close(gradients(one, inputs), gradients(whole, inputs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(dtype):
    query, key, value, biases = make(dtype=torch.float32)
    attended = pointwise_attention(query.to(dtype), key.to(dtype), value.to(dtype), biases)
    assert attended.dtype == dtype
    torch.testing.assert_close(attended.float(), pointwise_attention(query, key, value, biases), atol=0.2, rtol=0.05)


def papers_layer(x, buckets, layer):
    """Equations 1 to 3, with the norm and the division by the maximum length of the paper's code."""
    gate, query, value, key = silu(x @ layer.projection.weight.T).split(x.shape[-1], -1)
    query, value, key = (torch.stack(part.split(x.shape[-1] // layer.num_heads, -1), 1) for part in (query, value, key))
    mixed = naive_attention(query, key, value, Biases(layer.distance_bias, layer.time_bias, buckets)) / LONGEST
    mixed = torch.cat(mixed.unbind(1), -1)
    centred = mixed - mixed.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return (normed * gate) @ layer.output.weight.T + layer.output.bias


@pytest.mark.parametrize("heads", [1, 2])
def test_the_layer_equals_the_formula_of_the_paper(heads):
    compare_with_paper(drawn_layer(HSTUAttention, heads), papers_layer)


def test_the_layer_starts_as_the_papers_code_does():
    torch.manual_seed(0)
    encoder = SequenceEncoder(
        50, 4000, ArchitectureSettings(hidden_size=64, num_blocks=1, num_heads=2, attention="hstu", feed_forward="none")
    )
    layer = encoder.blocks[0].attention.function
    for weight in (layer.projection.weight, layer.distance_bias):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert abs(weight.mean()) < 2e-3
    assert 0.01 < layer.time_bias.std() < 0.03


def test_hstu_attention_grows_with_the_number_of_equal_events():
    """With a softmax it would be the same: the reason for its absence."""
    event = torch.ones(1, 1, 1, D)
    biases = Biases(torch.zeros(L), torch.zeros(LAST_BUCKET + 1), torch.zeros(1, L, L, dtype=torch.int64))
    attended = pointwise_attention(*[event.expand(1, 1, L, D)] * 3, biases)
    torch.testing.assert_close(
        attended[0, 0], silu(torch.tensor(float(D))) * torch.arange(1.0, L + 1).unsqueeze(1).expand(L, D)
    )


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_a_position_depends_on_no_later_event_and_no_padding(data):
    layer, length = drawn_layer(HSTUAttention), data.draw(st.integers(1, L))
    gaps = data.draw(st.lists(st.integers(0, 10**8), min_size=L, max_size=L))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    times, x = torch.tensor([gaps]).cumsum(1), torch.randn(1, L, 8, generator=generator, dtype=torch.float64)
    other, moved = x.clone(), times.clone()
    other[:, length:] = 10 * torch.randn(1, L - length, 8, generator=generator, dtype=torch.float64)
    moved[:, length:] += data.draw(st.integers(0, 10**9))

    def states(x, times):
        return layer(x, time_buckets(times.unsqueeze(2) - times.unsqueeze(1)))

    expected = states(x, times)[:, :length]
    torch.testing.assert_close(states(other, moved)[:, :length], expected)
    torch.testing.assert_close(states(x[:, :length], times[:, :length]), expected)
