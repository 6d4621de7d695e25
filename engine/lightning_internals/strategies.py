"""Gives public names to private hooks of Lightning's strategies."""

from abc import abstractmethod

from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn


class ModelSetupStrategy(ModelParallelStrategy):
    """ModelParallelStrategy that shards or wraps the module in `setup_model`.

    Lightning's strategies do it in `_setup_model`. Its public replacement, the module's `configure_model`, runs before
    the strategy knows whether the module is sharded already.
    """

    @abstractmethod
    def setup_model(self, model: nn.Module) -> nn.Module:
        """Return the module that the strategy trains: sharded, and on the device of this rank."""

    def _setup_model(self, model: nn.Module) -> nn.Module:
        return self.setup_model(model)
