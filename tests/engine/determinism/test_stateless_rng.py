"""Tests random numbers that are functions of their coordinates."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.determinism.stateless_rng import hash_bits, hash_integers, hash_permutation, hash_uniform, seed_torch

words = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(words, min_size=1, max_size=4), words)
def test_a_hash_depends_only_on_its_coordinates(coordinates, other):
    assert hash_bits(*coordinates) == hash_bits(*coordinates)
    if other != coordinates[0]:
        assert hash_bits(other, *coordinates[1:]) != hash_bits(*coordinates)


def test_arrays_hash_as_their_elements_do():
    rows, columns = np.arange(3)[:, None], np.arange(4)
    together = hash_bits(7, rows, columns)
    assert together.shape == (3, 4)
    assert all(together[r, c] == hash_bits(7, r, c) for r in range(3) for c in range(4))


def test_order_of_coordinates_matters():
    assert hash_bits(1, 2) != hash_bits(2, 1)
    assert hash_bits(1) != hash_bits(1, 0)


def test_the_numbers_never_change():
    """Resumed runs and published results depend on these numbers."""
    assert [int(x) for x in hash_integers(1000, 42, np.arange(5))] == [343, 950, 446, 977, 284]


def test_integers_are_uniform():
    draws = hash_integers(10, 3, np.arange(100_000))
    counts = np.bincount(draws, minlength=10)
    assert counts.min() > 9_600  # ten standard deviations are 950
    assert counts.max() < 10_400
    uniform = hash_uniform(3, np.arange(100_000))
    assert abs(uniform.mean() - 0.5) < 0.005
    assert 0 <= uniform.min() < uniform.max() < 1


def test_an_invalid_bound_is_refused():
    with pytest.raises(ValueError, match="bound must lie in"):
        hash_integers(0, 1)


@given(st.integers(0, 300), words)
def test_a_permutation_holds_everything_once(length, seed):
    assert sorted(hash_permutation(length, seed)) == list(range(length))


def test_torch_is_seeded_by_coordinates():
    seed_torch(1, 2, 3)
    first = torch.rand(4)
    torch.rand(100)
    seed_torch(1, 2, 3)
    assert torch.equal(torch.rand(4), first)
    seed_torch(1, 2, 4)
    assert not torch.equal(torch.rand(4), first)
