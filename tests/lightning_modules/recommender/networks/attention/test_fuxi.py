"""Tests FuXi-alpha's attention against the paper's formula, for all positions and the last, with gradients."""

import pytest
import torch

from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.fused_pointwise_attention import pointwise_attention
from lightning_modules.recommender.networks.attention.fuxi import FuXiAttention
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from tests.support.recommender.attention_inputs import (
    LONGEST,
    B,
    L,
    compare_with_paper,
    drawn_layer,
    gradients,
    make,
    silu,
)

C = 8


def papers_layer(x, buckets, layer):
    """Position by position; norm and division by the maximum length as in the paper's code."""
    gates, query, value, key = silu(x @ layer.projection.weight.T).split((3 * C, C, C, C), -1)
    heads = torch.arange(C).split(C // layer.num_heads)
    rows = []
    for row in range(B):
        positions = []
        for i in range(L):
            until = torch.arange(i + 1)
            by_distance = layer.distance_weights[i - until] @ value[row, until]
            by_time = layer.time_weights[buckets[row, i, until]] @ value[row, until]
            contents = [
                silu(key[row, until][:, head] @ query[row, i, head]) @ value[row, until][:, head] for head in heads
            ]
            positions.append(torch.cat((by_distance, by_time, torch.cat(contents) / LONGEST)))
        rows.append(torch.stack(positions))
    channels = torch.stack(rows)
    normed = channels / (channels.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return (normed * gates) @ layer.output.weight.T + layer.output.bias


@pytest.mark.parametrize("heads", [1, 2])
def test_the_layer_equals_the_formula_of_the_paper(heads):
    compare_with_paper(drawn_layer(FuXiAttention, heads), papers_layer)


def test_one_position_has_the_values_and_gradients_of_all():
    layer, buckets, last = drawn_layer(FuXiAttention), make()[3].buckets, torch.tensor([2, 6, 0])
    x = torch.randn(B, L, C, dtype=torch.float64, requires_grad=True)
    one, whole = layer(x, buckets, last)[:, 0], layer(x, buckets)[torch.arange(B), last]
    torch.testing.assert_close(one, whole)
    inputs = (x, *layer.parameters())
    torch.testing.assert_close(gradients(one, inputs), gradients(whole, inputs))


def test_the_tiles_need_no_biases(tiles):
    compare_without_biases(*make()[:3])


def test_tiles_of_200_events_equal_the_whole_matrix():
    compare_without_biases(*make(length=200, longest=200)[:3])


def compare_without_biases(query, key, value):
    actual = pointwise_attention(query, key, value)
    weights = silu(torch.einsum("bhid,bhjd->bhij", query, key)).tril()
    expected = torch.einsum("bhij,bhjd->bhid", weights, value)
    torch.testing.assert_close(actual, expected)
    inputs = query, key, value
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs))


def test_the_layer_starts_as_the_papers_code_does():
    torch.manual_seed(0)
    encoder = SequenceEncoder(
        50,
        4000,
        ArchitectureSettings(hidden_size=64, num_blocks=1, num_heads=2, attention="fuxi", feed_forward="swiglu"),
    )
    layer = encoder.blocks[0].attention.function
    for weight in (layer.projection.weight, layer.distance_weights):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert abs(weight.mean()) < 2e-3
    assert 0.01 < layer.time_weights.std() < 0.03
