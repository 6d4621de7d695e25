"""Tests that a series has the same features alone and in any batch, and their number."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.temporal.batch import Series, SeriesLayout
from lightning_modules.temporal.series_encoder import (
    STEP_WAVES,
    SUMMARY_FEATURES,
    VALUE_WAVES,
    SeriesEncoder,
    fourier_features,
    summary_features,
    value_features,
)
from lightning_modules.temporal.series_features import SeriesFeatures
from tests.support.temporal.encoders import CHANNELS, KINDS, encoder, series


@pytest.mark.parametrize(("tokens", "summary"), [*((kind, False) for kind in KINDS), ("channel_patch", True)])
@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5), room=st.integers(0, 9))
def test_a_series_alone_is_encoded_as_in_any_batch(tokens, summary, lengths, room):
    network, batch = encoder(tokens, summary=summary), series(lengths, room=room)
    together = network(batch)
    apart = []
    for row, length in enumerate(lengths):
        one = Series(
            batch.values[row : row + 1, :, :length], batch.present[row : row + 1, :, :length], torch.tensor([length])
        )
        apart.append(network(one))
        assert len(apart[-1]) == network.layout.feature_count(length)
    torch.testing.assert_close(together, torch.cat(apart), rtol=1e-5, atol=1e-5)
    assert len(together) == int(network.layout.feature_count(torch.tensor(lengths)).sum())


def test_a_sample_without_series_has_no_feature():
    network, batch = encoder("channel_patch"), series([20, 30, 10])
    networks = SimpleNamespace(encoder=network, projector=torch.nn.Identity())
    per_series = network.layout.feature_count(torch.tensor([20, 30, 10])).tolist()
    features = SeriesFeatures({}).compute(networks, batch._replace(per_sample=torch.tensor([0, 2, 0, 1])))
    assert features.counts.tolist() == [0, sum(per_series[:2]), 0, per_series[2]]


@pytest.mark.parametrize("tokens", KINDS)
def test_activation_checkpointing_keeps_less_and_changes_no_bit(tokens):
    actual = {}
    for on in (False, True):
        network, kept = encoder(tokens, dropout=0.3, activation_checkpointing=on).train(), {}

        def pack(saved, kept=kept):
            kept[saved.data_ptr()] = saved.untyped_storage().nbytes()
            return saved

        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            features = network(series([40, 60]))
        features.square().sum().backward()
        actual[on] = sum(kept.values()), [features.detach(), *(parameter.grad for parameter in network.parameters())]
    (most, expected), (least, results) = actual[False], actual[True]
    assert least < 0.7 * most
    assert all(torch.equal(a, b) for a, b in zip(expected, results, strict=True))


@pytest.mark.parametrize("tokens", KINDS)
def test_missing_values_have_no_effect(tokens):
    network, batch = encoder(tokens), series([12, 20])
    other = batch._replace(values=torch.where(batch.present, batch.values, torch.full_like(batch.values, 7.0)))
    assert torch.equal(network(batch), network(other))
    there = batch._replace(present=torch.ones_like(batch.present))
    assert not torch.allclose(network(batch), network(there))


@pytest.mark.parametrize("tokens", KINDS)
def test_every_parameter_and_every_number_counts(tokens):
    network, batch = encoder(tokens), series([12, 20])
    batch.values.requires_grad_()
    network(batch).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())
    assert torch.equal(batch.values.grad != 0, batch.present)


def test_features_come_channel_after_channel():
    """A change in one channel's patch changes the features near it in that channel, and no other channel's."""
    network, batch = encoder("channel_patch"), series([40])
    batch = batch._replace(present=torch.ones_like(batch.present))
    changed = batch._replace(values=batch.values.clone())
    changed.values[0, 1, 20] += 0.01  # patch 5 of channel 1, within its range; the convolutions reach 6 steps
    assert batch.values[0, 1].min() < batch.values[0, 1, 20] < changed.values[0, 1, 20] < batch.values[0, 1].max()
    differs = (network(batch) != network(changed)).any(-1).nonzero().flatten().tolist()
    assert set(differs) <= {10 + patch for patch in range(3, 8)}
    assert 15 in differs


def test_a_chat_without_a_series_has_no_features():
    batch = Series(torch.zeros(2, CHANNELS, 5), torch.zeros(2, CHANNELS, 5, dtype=torch.bool), torch.tensor([0, 5]))
    for tokens in KINDS:
        features = encoder(tokens)(batch)
        assert len(features) == encoder(tokens).layout.feature_count(5)
        assert features.isfinite().all()


@pytest.mark.parametrize("tokens", ["patch", "channel_patch"])
def test_a_patch_may_hold_a_single_step(tokens):
    network = SeriesEncoder(SeriesLayout(CHANNELS, tokens, 1), output_size=10, hidden_size=8).eval()
    assert len(network(series([5]))) == network.layout.feature_count(5)


@settings(max_examples=50, deadline=None)
@given(length=st.integers(1, 40), seed=st.integers(0, 1000))
def test_a_summary_is_that_of_the_measurements(length, seed):
    """The plain reference computes one channel at a time, on the measurements alone."""
    batch = series([length], seed, room=3)
    batch = batch._replace(values=(batch.values * 10).round() / 10)  # equal values: the first step counts
    features = summary_features(batch.values, batch.present)
    assert features.shape == (1, CHANNELS, SUMMARY_FEATURES)
    for channel in range(CHANNELS):
        steps = batch.present[0, channel].nonzero().flatten()
        there = batch.values[0, channel, steps]
        if not len(steps):
            assert not features[0, channel].any()
            continue
        end = max(1, len(there) // 10)
        levels = torch.stack((there.min(), there.max(), there[:end].mean(), there[-end:].mean()))
        firsts = [
            next(t for t, v in zip(steps.tolist(), there.tolist(), strict=True) if v == extreme)
            for extreme in levels[:2]
        ]
        at = fourier_features(torch.tensor(firsts, dtype=torch.float32), STEP_WAVES).flatten()
        torch.testing.assert_close(
            features[0, channel], torch.cat((levels, fourier_features(levels, VALUE_WAVES).flatten(), at))
        )


@pytest.mark.parametrize("tokens", ["patch", "pooled"])
def test_a_summary_needs_features_of_a_channel(tokens):
    with pytest.raises(ValueError, match=f"encoder_summary: found true with .*series_tokens {tokens}, .*channel_patch"):
        encoder(tokens, summary=True)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_every_pooling_returns_one_vector_a_series(pooling):
    assert encoder("pooled", pooling=pooling)(series([7, 9])).shape == (2, 10)


def test_even_kernels_are_refused():
    with pytest.raises(ValueError, match=r"odd.*got \[3, 4\]"):
        encoder("patch", kernel_sizes=(3, 4))


def test_the_features_of_200_steps_all_differ():
    table = fourier_features(torch.arange(200.0), STEP_WAVES)
    assert torch.cdist(table, table).add(torch.eye(200)).min() > 0.05


def test_channels_that_are_empty_or_flat_have_finite_features():
    values, present = torch.full((1, 2, 5), 0.4), torch.ones(1, 2, 5, dtype=torch.bool)
    present[0, 0] = False
    features = value_features(values, present)
    assert features.isfinite().all()
    assert not features[0, 0].any()
    assert (features[0, 1, :, 4] == 0).all()


@pytest.mark.parametrize("tokens", KINDS)
def test_steps_are_distinguished_under_autocast(tokens):
    """The time embedding of a step is computed in fp32 and rounded once; in bf16 it was off by a tenth at step 90."""
    network, seen = encoder(tokens), []
    network.time.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        network(series([300]))
    (table,) = seen
    steps = torch.arange(len(table)) * (1 if tokens == "pooled" else network.layout.patch)
    torch.testing.assert_close(table.float(), fourier_features(steps.float(), STEP_WAVES), atol=0.005, rtol=0)
