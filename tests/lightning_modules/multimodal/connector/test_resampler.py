"""Tests the resampler: one feature per query, from all input features, in any order."""

import pytest
import torch

from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings

SETTINGS = ProjectorSettings(kind="resampler", queries=5, heads=2, depth=2, hidden_size=8)


def projector(settings=SETTINGS):
    torch.manual_seed(1)
    return Projector(settings, input_size=6, output_size=12)


@pytest.mark.parametrize("features", [1, 9, 16])
def test_any_number_of_features_becomes_as_many_as_queries(features):
    assert SETTINGS.count(features) == 5
    assert projector()(torch.randn(3, features, 6)).shape == (3, 5, 12)


def test_gradients_reach_every_weight_and_every_feature():
    resampler, features = projector(), torch.randn(2, 9, 6, requires_grad=True)
    resampled = resampler(features)
    (resampled * torch.randn_like(resampled)).sum().backward()
    assert [name for name, parameter in resampler.named_parameters() if parameter.grad is None] == []
    assert (features.grad.norm(dim=-1) > 0).all()


def test_samples_do_not_see_each_other():
    resampler, features = projector(), torch.randn(3, 9, 6)
    torch.testing.assert_close(resampler(features)[1:2], resampler(features[1:2]))


def test_order_of_the_features_does_not_matter_and_the_features_do():
    resampler, features = projector(), torch.randn(1, 9, 6)
    torch.testing.assert_close(resampler(features.flip(1)), resampler(features), atol=1e-5, rtol=1e-4)
    assert (resampler(features) - resampler(features + torch.randn(1, 9, 6))).abs().max() > 1e-3


def test_queries_become_different_embeddings():
    projected = projector()(torch.randn(1, 9, 6))[0]
    distances = torch.cdist(projected, projected) + torch.eye(5) * 10
    assert distances.min() > 1e-2


def test_a_layer_equals_attention_by_hand():
    """One layer, one head: softmax of the scores over features and queries."""
    from lightning_modules.multimodal.connector.resampler import ResamplerLayer

    torch.manual_seed(2)
    layer = ResamplerLayer(4, heads=1)
    queries, features = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    normed_queries = layer.query_norm(queries)
    looked_at = torch.cat([layer.feature_norm(features), normed_queries], dim=1)
    keys, values = layer.answer(looked_at).split(4, dim=-1)
    weights = (layer.ask(normed_queries) @ keys.mT / 2).softmax(-1)
    assert weights.shape == (1, 2, 5)
    state = queries + layer.leave(weights @ values)
    torch.testing.assert_close(layer(queries, features), state + layer.feed_forward(layer.norm(state)))


def test_the_resampler_runs_in_bf16_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert projector()(torch.randn(2, 9, 6)).isfinite().all()


def test_heads_share_the_width():
    with pytest.raises(ValueError, match="projector.heads is 3, which does not divide the resampler's width of 8"):
        projector(ProjectorSettings(kind="resampler", heads=3, hidden_size=8))


def test_a_projector_that_does_not_train():
    frozen = projector(ProjectorSettings(kind="resampler", heads=2, hidden_size=8, trainable=False))
    parameters = list(frozen.parameters())
    assert parameters
    assert not any(parameter.requires_grad for parameter in parameters)


def test_operations_are_counted_as_they_are_done():
    """Against PyTorch's own counter, forward; three times as many when everything trains."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    frozen = projector(ProjectorSettings(**{**SETTINGS.__dict__, "trainable": False}))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # others it does not count
        frozen(torch.randn(1, 9, 6))
    assert frozen.flops(9, behind_trained=False) == counter.get_total_flops() > 0
    assert projector().flops(9, behind_trained=True) == 3 * counter.get_total_flops()
