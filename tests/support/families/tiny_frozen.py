"""Defines the tiny family with frozen weights, and with extra weights that make its checkpoints large."""

from typing import Any

import torch
from torch import Tensor

from engine.module import LockstepModule
from tests.support.families.tiny_linear import FEATURES, TINY_FAMILY, TinyModule

READER = [
    *TINY_FAMILY,
    "--model",
    "tests.support.families.tiny_frozen.ReaderModule",
    "--data.init_args.batch_size",
    "10",
]


class ReaderModule(TinyModule):
    """Least squares on features that a frozen network has turned around.

    Args:
        pretraining: seed of the frozen weights, as another download would give others.
        ballast: trained weights that do nothing but make the checkpoint large.
        training: see TinyModule.
    """

    def __init__(self, pretraining: int = 0, ballast: int = 50_000, **training: Any) -> None:
        super().__init__(**training)
        generator = torch.Generator().manual_seed(pretraining)
        self.language = torch.nn.Linear(FEATURES, FEATURES)
        for parameter in self.language.parameters():
            parameter.data = torch.rand(parameter.shape, generator=generator)
        self.language.requires_grad_(False)
        self.ballast = torch.nn.Parameter(torch.linspace(0, 1, ballast))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Not every parameter has a gradient to write down here."""
        LockstepModule.on_before_optimizer_step(self, optimizer)

    def _errors(self, features: Tensor, targets: Tensor) -> Tensor:
        return super()._errors(self.language(torch.as_tensor(features)), targets) + 0 * self.ballast.sum()
