"""Defines a tower of small linear layers, a million parameters in 48 tensors, for the bare loop and for the engine."""

import torch
from torch import Tensor, nn
from typing_extensions import override

from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from engine.optim.global_loss_mean import LossSum

WIDTH, LAYERS, SAMPLES = 200, 24, 32768

BATCH_SIZES = {"5 ms": 8, "20 ms": 120}
"""Samples of a process in a step of the tower, by the duration of the step on a single core."""


def tower() -> nn.Sequential:
    """Create 24 layers of 200 x 200."""
    torch.manual_seed(1)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    # There is no Tanh at the end: it could not reach normally distributed targets.
    return nn.Sequential(*layers[:-1])


def samples() -> tuple[Tensor, Tensor]:
    """Return inputs and targets, [32768, 200] each. Epochs are so long that saving at their end has no effect."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(SAMPLES, WIDTH, generator=generator), torch.randn(SAMPLES, WIDTH, generator=generator)


def squared_errors(network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return [b], the mean squared error of each sample."""
    return (network(inputs) - targets).square().mean(dim=1)


class Samples:
    """Data set of the engine with the samples."""

    def __init__(self) -> None:
        self.inputs, self.targets = samples()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, request: MicroBatchRequest) -> tuple[Tensor, Tensor]:
        indices = torch.from_numpy(request.indices[request.indices != PADDING_INDEX])
        return self.inputs[indices], self.targets[indices]


class TowerData(LockstepDataModule):
    """DataModule with the samples in memory."""

    @override
    def setup(self, stage: str) -> None:
        self.train_set = self.validation_set = Samples()


class Tower(LockstepModule):
    """LightningModule with the tower."""

    def __init__(self, learning_rate: float = 1e-3) -> None:
        super().__init__(learning_rate=learning_rate)
        self.network = tower()

    @override
    def training_loss(self, batch: tuple[Tensor, Tensor]) -> LossSum:
        errors = squared_errors(self.network, *batch)
        return LossSum(errors.sum(), len(errors))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Do nothing: the benchmark does not evaluate."""
