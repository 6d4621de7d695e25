"""Tests dropout masks from hashes: independent bits, and the same mask of a sample in any batch."""

import pytest
import torch

from datamodules.recommender.batch import History
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention import tiles as attention_tiles
from lightning_modules.recommender.networks.counter_dropout import Dropout
from lightning_modules.recommender.networks.dropout_keys import (
    DropoutKeys,
    dropout_keys,
    keyed_dropout_layers,
    number_layers,
    set_keys,
)
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

SEED, STEP, V, LONGEST = 3, 7, 20, 9
USERS = torch.tensor([5, 0, 11, 2])
KINDS = {
    "standard": {},
    "time_interval": {"attention": "time_interval", "time_span": 16, "num_heads": 2},
    "gated mhc": {"residual": "gated_mhc", "streams": 2, "sinkhorn_iterations": 3, "feed_forward": "swiglu"},
    "hstu": {"attention": "hstu", "feed_forward": "none"},
    "fuxi": {"attention": "fuxi", "feed_forward": "swiglu"},
    "gru": {"attention": "gru", "feed_forward": "none"},
    "checkpointed": {"attention": "time_interval", "time_span": 16, "activation_checkpointing": True},
}


def masks(p, samples, step=STEP, seed=SEED, shape=(50, 64)):
    """Masks [layer, sample, ...] of two layers."""
    layers = torch.nn.ModuleList([Dropout(p), Dropout(p)])
    number_layers(layers)
    set_keys(keyed_dropout_layers(layers), *dropout_keys([samples], seed, step))
    ones = torch.ones(len(samples), *shape)
    return torch.stack([layer(ones) for layer in layers]) > 0


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_bits_are_as_independent_as_drawn_ones(p):
    """Each statistic lies within five standard errors of its value for independent bits."""
    mask = masks(p, torch.arange(40)).double()
    assert abs(mask.mean() - (1 - p)) < 5 * (p * (1 - p) / mask.numel()) ** 0.5
    centred = (mask - (1 - p)) / (p * (1 - p)) ** 0.5
    for name, other in {
        "layers": centred.flip(0),
        "samples": centred.roll(1, 1),
        "positions": centred.roll(1, 2),
        "channels": centred.roll(1, 3),
        "lanes": centred.roll(4, 3),
        "steps": None,
        "seeds": None,
    }.items():
        if other is None:
            changed = masks(p, torch.arange(40), STEP + (name == "steps"), SEED + (name == "seeds")).double()
            other = (changed - (1 - p)) / (p * (1 - p)) ** 0.5
        assert abs((centred * other).mean()) * mask.numel() ** 0.5 < 5, name
    for dimension in range(4):
        share = mask.mean([other for other in range(4) if other != dimension])
        error = (p * (1 - p) * len(share) / mask.numel()) ** 0.5
        assert (share - (1 - p)).abs().max() < 5 * error, dimension


def test_a_mask_depends_on_its_sample_and_not_on_the_batch():
    mask = masks(0.3, USERS)
    for row, user in enumerate(USERS):
        alone = masks(0.3, user[None], shape=(7, 10))
        assert torch.equal(alone[:, 0], mask[:, row, :7, :10])


def test_rows_share_the_mask_of_a_table():
    table, found = torch.ones(6, 8), []
    for samples in (USERS, USERS[:1]):
        layer = Dropout(0.5)
        (layer.keys,) = dropout_keys([samples], SEED, STEP)
        found.append([layer(table, call, shared=True) for call in range(2)])
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_computed_the_same_in_any_batch(kind, monkeypatch):
    """States and gradients of a batch equal those of its rows alone, with dropout, without padding, in other tiles."""
    torch.manual_seed(0)
    encoder = SequenceEncoder(V, LONGEST, ArchitectureSettings(hidden_size=8, dropout=0.4, **KINDS[kind])).double()
    lengths = torch.tensor([3, 9, 1, 6])
    items = torch.randint(1, V + 1, (4, LONGEST))
    times = torch.randint(0, 50, (4, LONGEST)).cumsum(1)
    scale, at = torch.ones(4, dtype=torch.int64), times[:, -1] + 5
    history = History(items, times, lengths, scale, at)
    (keys,) = dropout_keys([USERS], SEED, STEP)
    states, real = encoder(history, keys=keys), torch.arange(LONGEST) < lengths[:, None]
    # Before the backward pass, as the other parts of a micro-batch.
    monkeypatch.setattr(attention_tiles, "CPU_TILE", 40)
    parts = []
    for row, length in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        alone = History(items[one, :length], times[one, :length], lengths[one], scale[one], at[one])
        parts.append(encoder(alone, keys=DropoutKeys(keys.rows[one], keys.step)))
        torch.testing.assert_close(parts[-1][0], states[row, :length])
    weights = list(encoder.parameters())
    of_rows = torch.autograd.grad(sum(part.square().sum() for part in parts), weights, allow_unused=True)
    monkeypatch.undo()
    together = torch.autograd.grad(states[real].square().sum(), weights, allow_unused=True)
    for ours, theirs in zip(together, of_rows, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            torch.testing.assert_close(ours, theirs)
    other = encoder(history, keys=dropout_keys([USERS], SEED, STEP + 1)[0])
    assert not torch.allclose(other[real], states[real]), "another step has other masks"
