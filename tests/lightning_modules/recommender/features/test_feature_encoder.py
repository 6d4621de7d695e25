"""Tests vectors of items from features against a plain loop, and item dropout against its definition."""

import numpy as np
import pytest
import torch

from engine.determinism.stateless_rng import hash_uniform
from engine.strategies.fsdp import VerifiedFSDPStrategy
from lightning_modules.recommender.features.feature_encoder import (
    FeatureEncoder,
    check_strategy_of_features,
    feature_encoder,
)
from lightning_modules.recommender.features.item_dropout import _DROPPED_ITEMS, keeps_own_vector
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from tests.support.recommender.random_features import random_features


@pytest.mark.parametrize("dense", [3, 0])
def test_vectors_of_features_equal_a_plain_loop(dense):
    torch.manual_seed(0)
    arrays = random_features(5, {1, 3, 4}, cold=2, dense=dense)
    features = FeatureEncoder(arrays, 4)
    assert (features.projection is None) == (dense == 0)
    assert (features.categories.weight[~torch.from_numpy(arrays.known)] == 0).all()
    expected = []
    for codes, shares, values in zip(arrays.codes, arrays.shares, arrays.dense, strict=True):
        vector = sum(float(share) * features.categories.weight[code] for code, share in zip(codes, shares, strict=True))
        if features.projection is not None:
            vector = vector + features.projection.weight @ torch.from_numpy(values)
        expected.append(vector)
    items = torch.tensor([3, 0, 7, 1])
    torch.testing.assert_close(features(items), torch.stack(expected)[items], rtol=1e-5, atol=1e-6)
    gradients = [
        torch.autograd.grad((vectors**3).sum(), list(features.parameters()))
        for vectors in (features(torch.arange(8)), torch.stack(expected))
    ]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_an_item_that_was_not_trained_has_no_vector_of_its_own():
    torch.manual_seed(0)
    features, own = FeatureEncoder(random_features(5, {1, 3, 4}, cold=2), 4), torch.randn(6, 4)
    own[0] = 0
    vectors = features.item_vectors(own)
    alone = features(torch.arange(8)).detach()
    assert vectors.shape == (8, 4)
    assert (vectors[0] == 0).all()
    for item in range(1, 8):
        expected = alone[item] + own[item] if item in (1, 3, 4) else alone[item]
        torch.testing.assert_close(vectors[item], expected)
    torch.testing.assert_close(features.item_vectors(own, num_items=5), vectors[:6])


def test_training_items_are_numbered_among_all_items():
    features = FeatureEncoder(random_features(5, {1, 3, 4}, cold=1), 4)
    assert features.training_items.tolist() == [0, 1, 3, 4]
    assert features.training_index.tolist() == [0, 1, 0, 2, 3, 0, 0]
    assert {name.split(".")[0] for name in features.state_dict()} == {"categories", "projection"}, "no features"


@pytest.mark.parametrize("share", [0.0, 0.2, 0.999])
@pytest.mark.parametrize(("seed", "step"), [(1, 0), (2**40, 12_345)])
def test_item_dropout_is_a_hash_of_seed_step_and_item(share, seed, step):
    items = torch.arange(5000).view(50, 100)
    actual = keeps_own_vector(items, share, seed, step)
    expected = hash_uniform(seed, _DROPPED_ITEMS, step, items.numpy()) >= share
    np.testing.assert_array_equal(actual.numpy(), expected)
    assert abs(float(actual.float().mean()) - (1 - share)) < 0.03


def test_what_does_not_work_with_features_is_refused():
    arrays = random_features(5, {1, 2})
    encoder = SequenceEncoder(5, 4, ArchitectureSettings(hidden_size=4, tie_output=False))
    with pytest.raises(ValueError, match=r"item_features with model.init_args.tie_output false"):
        feature_encoder(arrays, encoder)
    assert feature_encoder(None, encoder) is None
    check_strategy_of_features(None, VerifiedFSDPStrategy())
    with pytest.raises(ValueError, match=r"item_features with trainer.strategy VerifiedFSDPStrategy"):
        check_strategy_of_features(arrays, VerifiedFSDPStrategy())
