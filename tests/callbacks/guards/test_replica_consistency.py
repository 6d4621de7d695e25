"""Tests the comparison of replicas on one rank; tests/distributed/faults/test_numeric_guards.py tests two ranks."""

import pytest
import torch

from callbacks.guards.replica_consistency import ReplicaConsistencyCheck, _holders
from tests.conftest import TINY


def test_holders_are_grouped_by_value():
    assert _holders(torch.tensor([5, 7, 5])) == "one value on ranks 0, 2; another on rank 1"
    assert _holders(torch.tensor([5, 6, 7])) == "one value on rank 0; another on rank 1; another on rank 2"


def test_a_negative_interval_is_refused():
    with pytest.raises(ValueError, match="replica_consistency.every_n_steps must be at least 0, got -1"):
        ReplicaConsistencyCheck(every_n_steps=-1)


def test_one_process_makes_no_comparison(lockstep, monkeypatch):
    def unexpected(*arguments):
        raise AssertionError("compared")

    monkeypatch.setattr("callbacks.guards.replica_consistency.compare_replicas", unexpected)
    lockstep("fit", *TINY, "--trainer.max_steps", "2", "--replica_consistency.every_n_steps", "1", name="a")
