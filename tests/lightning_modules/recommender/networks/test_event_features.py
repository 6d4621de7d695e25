"""Tests vectors of events from their features against a plain loop, and their effect in the encoder."""

import math

import pytest
import torch

from lightning_modules.recommender.networks.inputs.event_features import EventFeatureEncoder
from lightning_modules.recommender.networks.last_position import encode_last_position
from tests.support.recommender.encoders import make_encoder, make_history

SIZES = {"categories": [3, 1], "numbers": 2}
NETWORKS = [
    {"attention": "standard", "residual": "gated_mhc"},
    {"attention": "time_interval"},
    {"attention": "hstu", "feed_forward": "none"},
    {"attention": "fuxi", "feed_forward": "swiglu"},
    {"attention": "gru", "feed_forward": "none", "num_heads": 1},
]


def with_features(history, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = history.items.shape
    codes = torch.stack([torch.randint(0, size + 1, shape, generator=generator) for size in SIZES["categories"]], 2)
    numbers = torch.randn(*shape, SIZES["numbers"], generator=generator)
    numbers[torch.rand(numbers.shape, generator=generator) < 0.3] = torch.nan
    return history._replace(event_codes=codes, event_numbers=numbers)


def drawn(features):
    generator = torch.Generator().manual_seed(1)
    for parameter in features.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return features


def plain(features, codes, numbers):
    """The vector of each event, one after the other."""
    rows = []
    for event_codes, event_numbers in zip(codes.flatten(0, 1).tolist(), numbers.flatten(0, 1).tolist(), strict=True):
        vector, first = 0.0, 0
        for code, size in zip(event_codes, SIZES["categories"], strict=True):
            vector, first = vector + features.categories[first + code], first + size + 1
        for column, number in enumerate(event_numbers):
            known = not math.isnan(number)
            vector = vector + (number * features.numbers[column] if known else features.missing[column])
        rows.append(vector)
    return torch.stack(rows).view(*codes.shape[:2], -1)


def test_vectors_and_gradients_of_event_features_equal_a_plain_loop():
    features, history = drawn(EventFeatureEncoder(SIZES, 5)), with_features(make_history())
    actual, expected = (
        f(history.event_codes, history.event_numbers) for f in (features, lambda *given: plain(features, *given))
    )
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad((vectors**3).sum(), list(features.parameters())) for vectors in (actual, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert {name for name, _ in features.named_parameters()} == {"categories", "numbers", "missing"}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network["attention"])
def test_a_new_encoder_is_that_without_features_to_the_bit(network):
    history = make_history()
    without, encoder = make_encoder(**network).eval(), make_encoder(**network, event_features=SIZES).eval()
    weights = encoder.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in without.state_dict().items())
    assert not any("event" in name for name in without.state_dict())
    assert torch.equal(encoder(with_features(history)), without(history))
    with pytest.raises(ValueError, match="event_features: found a history without `event_codes`"):
        encoder(history)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network["attention"])
def test_features_are_added_to_the_vectors_of_items(network):
    """States and gradients equal an encoder's without features, whose items have the sums as vectors."""
    history = with_features(make_history())
    without, encoder = make_encoder(**network, dropout=0.0), make_encoder(**network, dropout=0.0, event_features=SIZES)
    drawn(encoder.event_features)
    states = encoder(history)
    events = plain(encoder.event_features, history.event_codes, history.event_numbers)
    real = (history.items > 0).unsqueeze(2)
    table = torch.cat((torch.zeros(1, 8), ((encoder.items(history.items) + events) * real).flatten(0, 1)))
    item_ids = torch.arange(1, len(table)).view_as(history.items) * (history.items > 0)
    expected = without(history._replace(items=item_ids), item_vectors=table)
    weight = torch.randn(states.shape, generator=torch.Generator().manual_seed(2)) * real
    torch.testing.assert_close(states * real, expected * real, rtol=1e-4, atol=1e-5)
    ours = dict(encoder.named_parameters())
    mine = torch.autograd.grad((states * weight).sum(), list(ours.values()), allow_unused=True)
    (expected * weight).sum().backward()
    theirs = dict(without.named_parameters())
    for (name, parameter), gradient in zip(ours.items(), mine, strict=True):
        reference = parameter.grad if name == "items.weight" or "event" in name else theirs[name].grad
        if reference is not None and gradient is not None:
            torch.testing.assert_close(
                gradient, reference, rtol=1e-3, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
            )
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.event_features.parameters())


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network["attention"])
def test_a_position_reads_features_of_the_past_alone(network):
    encoder = make_encoder(**network, event_features=SIZES).eval()
    drawn(encoder.event_features)
    history = with_features(make_history())
    before = encoder(history)[1]
    last = encode_last_position(encoder, history)
    torch.testing.assert_close(last[:3], encoder(history)[torch.arange(3), history.lengths[:3] - 1])
    history.event_codes[1, 3:] = 1 - history.event_codes[1, 3:].clamp_max(1)
    history.event_numbers[1, 3:] = 3.0
    after = encoder(history)[1]
    torch.testing.assert_close(after[:3], before[:3])
    assert (after[3:] - before[3:]).abs().amax(1).min() > 1e-3
