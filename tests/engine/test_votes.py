"""Votes of one process; tests/distributed shows that several agree."""

import pytest
import torch
from torch import nn

from engine.exact_mean import ExactMean, LossSum
from engine.votes import Votes


def step(votes):
    weight = nn.Parameter(torch.ones(3))
    mean = ExactMean(4)
    mean.add(LossSum((weight * 2).sum(), 3)).backward()
    assert mean.finish([weight], votes) == 2.0
    assert weight.grad.tolist() == pytest.approx([2 / 3] * 3)


def test_votes_are_counted_with_the_step():
    votes = Votes()
    votes.open("stop")
    votes.open("full disk")
    assert votes.total("stop") == 0
    votes.cast("full disk")
    assert votes.total("full disk") == 0, "not before the step"
    step(votes)
    assert (votes.total("stop"), votes.total("full disk")) == (0, 1)
    votes.cast("stop", 2)
    step(votes)
    step(votes)
    assert (votes.total("stop"), votes.total("full disk")) == (2, 1)


def test_a_vote_must_be_opened():
    votes = Votes()
    with pytest.raises(KeyError):
        votes.cast("stop")
    with pytest.raises(KeyError, match="was not opened"):
        votes.total("stop")
