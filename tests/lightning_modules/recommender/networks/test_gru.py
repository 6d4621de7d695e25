"""Compares GRU4Rec's layers with the recurrence of their definition, in values and gradients."""

import math

import pytest
import torch

from lightning_modules.recommender.networks.gru import GRULayers
from tests.support.recommender.encoders import GRU, make_encoder, make_history


def plain_gru(encoder, items):
    """The recurrence, event by event: h = (1 - z) n + z h, without torch's layer."""
    states = encoder.items.weight[items] * math.sqrt(encoder.items.embedding_dim)
    for layer in encoder.recurrent.layers:
        weights = [layer.weight_ih_l0.chunk(3), layer.weight_hh_l0.chunk(3)]
        biases = [layer.bias_ih_l0.chunk(3), layer.bias_hh_l0.chunk(3)]
        hidden, outputs = torch.zeros(states.shape[-1], dtype=states.dtype), []
        for state in states:
            of_input, of_hidden = (
                [w @ x + b for w, b in zip(weights[side], biases[side], strict=True)]
                for side, x in enumerate((state, hidden))
            )
            reset, update = (torch.sigmoid(of_input[gate] + of_hidden[gate]) for gate in (0, 1))
            new = torch.tanh(of_input[2] + reset * of_hidden[2])
            hidden = (1 - update) * new + update * hidden
            outputs.append(hidden)
        states = torch.stack(outputs)
    return states


def test_the_layers_are_the_recurrence():
    encoder = make_encoder(**GRU, num_blocks=2).double().eval()
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "bias" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    history = make_history()
    states = encoder(history)
    rows = [row[:length] for row, length in zip(history.items, history.lengths.tolist(), strict=True) if length]
    actual = torch.cat([states[row, : len(items)] for row, items in enumerate(rows)])
    expected = torch.cat([plain_gru(encoder, items) for items in rows])
    torch.testing.assert_close(actual, expected)
    weight = torch.randn(actual.shape, dtype=actual.dtype, generator=torch.Generator().manual_seed(1))
    parameters = list(encoder.parameters())
    gradients = [torch.autograd.grad((x * weight).sum(), parameters) for x in (actual, expected)]
    torch.testing.assert_close(*gradients)
    last = encoder(history, last_only=True)[:3, 0]
    torch.testing.assert_close(last, torch.stack([plain_gru(encoder, items)[-1] for items in rows]))


def test_initial_weights_are_those_of_the_authors_code():
    layers = GRULayers(32, 2, 0.5)
    limit = math.sqrt(6 / 64)
    for name, parameter in layers.named_parameters():
        if "bias" in name:
            assert not parameter.any()
        else:
            assert 0.95 * limit < parameter.abs().max() <= limit


def test_dropout_follows_each_layer():
    layers = GRULayers(64, 1, 0.25).train()
    torch.manual_seed(3)
    x = torch.randn(20, 10, 64)
    dropped = layers(x) == 0
    assert abs(dropped.float().mean() - 0.25) < 0.01
    layers.eval()
    torch.testing.assert_close(layers(x), layers.layers[0](x)[0])


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("feed_forward", "relu", "none"),
        ("residual", "gated", "plain"),
        ("norm", "post", "pre"),
        ("num_heads", 2, "1"),
        ("activation_checkpointing", True, "false"),
        ("request_time", True, "false"),
    ],
)
def test_settings_without_effect_are_refused(key, value, expected):
    message = f"{key}: found {str(value).lower()}, and attention gru .* set {key} {expected}"
    with pytest.raises(ValueError, match=message):
        make_encoder(**{**GRU, key: value})
