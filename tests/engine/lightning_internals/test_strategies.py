"""Checks the contract of the private hook of Lightning's strategies."""

import inspect

import pytest
from lightning.pytorch.strategies import Strategy
from torch import nn

from engine.lightning_internals.strategies import ModelSetupStrategy
from tests.engine.lightning_internals.tiny_training import INSTALLED


def test_strategies_set_a_model_up_in_a_private_hook():
    assert list(inspect.signature(Strategy._setup_model).parameters) == ["self", "model"], INSTALLED

    class Wrapping(ModelSetupStrategy):
        def setup_model(self, model):
            return nn.Sequential(model)

    model = nn.Linear(1, 1)
    assert Wrapping()._setup_model(model)[0] is model
    with pytest.raises(TypeError, match="setup_model"):
        ModelSetupStrategy()
