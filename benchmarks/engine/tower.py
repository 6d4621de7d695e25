"""A tower of small linear layers, about a million parameters in 48 tensors, for the bare loop and for the engine."""

import torch
from torch import Tensor, nn

from engine.datamodule import LockstepDataModule
from engine.exact_mean import LossSum
from engine.module import LockstepModule
from engine.sampling import FILLER, Draw

WIDTH, LAYERS, SAMPLES = 200, 24, 32768


def tower() -> nn.Sequential:
    """24 layers of 200 x 200."""
    torch.manual_seed(1)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def samples() -> tuple[Tensor, Tensor]:
    """Inputs and targets, [32768, 200] each: epochs so long that what is saved at their end does not count."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(SAMPLES, WIDTH, generator=generator), torch.randn(SAMPLES, WIDTH, generator=generator)


def squared_errors(network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """[b]: each sample's mean squared error."""
    return (network(inputs) - targets).square().mean(dim=1)


class Samples:
    """The samples as a data set of the engine."""

    def __init__(self) -> None:
        self.inputs, self.targets = samples()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, draw: Draw) -> tuple[Tensor, Tensor]:
        indices = torch.from_numpy(draw.indices[draw.indices != FILLER])
        return self.inputs[indices], self.targets[indices]


class TowerData(LockstepDataModule):
    """The samples in memory."""

    def setup(self, stage: str) -> None:
        self.train_set = self.validation_set = Samples()


class Tower(LockstepModule):
    """The tower in the engine."""

    def __init__(self, learning_rate: float = 1e-3) -> None:
        super().__init__(learning_rate=learning_rate)
        self.network = tower()

    def training_loss(self, batch: tuple[Tensor, Tensor]) -> LossSum:
        errors = squared_errors(self.network, *batch)
        return LossSum(errors.sum(), len(errors))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """The benchmark does not evaluate."""
