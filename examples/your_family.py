"""A family of your own in one file: data and a model of your own, trained, resumed and logged as the other five are.

    python examples/your_family.py

learns the sign of a hidden rule from 16 numbers. A family is a batch, a LockstepDataModule that makes it for given
indices, and a LockstepModule that returns the sum of the losses and their number; configs name both by their class
paths. Takes half a minute. docs/add-a-family.md adds a family to the checkout, with its config and a short name.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchmetrics import MeanMetric
from typing_extensions import override

from engine.data.samplers import MicroBatchRequest
from engine.datamodule import LockstepDataModule
from engine.determinism.stateless_rng import hash_integers
from engine.module import LockstepModule
from engine.optim.global_loss_mean import LossSum

INPUTS = 16


class Points(NamedTuple):
    """B samples; arrays become tensors on the model's device."""

    rows: NDArray[np.int64]  # [B] indices; a negative one is padding and has no weight
    inputs: NDArray[np.float32]  # [B, INPUTS]
    labels: NDArray[np.float32]  # [B] 0 or 1


class GeneratedPoints:
    """Samples as a function of their index alone, so that a resumed run sees the same ones."""

    def __init__(self, seed: int, size: int) -> None:
        self.seed, self.size = seed, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, request: MicroBatchRequest) -> Points:
        cells = hash_integers(2001, self.seed, request.indices[:, None], np.arange(INPUTS)) / 1000 - 1
        labels = (cells[:, ::2].sum(1) > cells[:, 1::2].sum(1)).astype(np.float32)
        return Points(request.indices, cells.astype(np.float32), labels)


class RuleData(LockstepDataModule):
    """Samples of the rule. Arguments are those of LockstepDataModule."""

    @override
    def setup(self, stage: str) -> None:
        sets = (GeneratedPoints(seed, size) for seed, size in enumerate((6400, 1000, 1000)))
        self.train_set, self.validation_set, self.test_set = sets


class RuleModel(LockstepModule):
    """Learns the rule with a hidden layer. Arguments are those of LockstepModule."""

    def __init__(self, **training: Any) -> None:
        super().__init__(**training)
        self.accuracy = MeanMetric().set_dtype(torch.float64)

    @override
    def configure_model(self) -> None:
        if not hasattr(self, "network"):  # called again when a run is resumed
            self.network = nn.Sequential(nn.Linear(INPUTS, 32), nn.GELU(), nn.Linear(32, 1))

    @override
    def training_loss(self, batch: Any) -> LossSum:
        counts = batch.rows >= 0
        losses = binary_cross_entropy_with_logits(self.network(batch.inputs)[:, 0], batch.labels, reduction="none")
        return LossSum((losses * counts).sum(), counts.sum())

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        right: Tensor = (self.network(batch.inputs)[:, 0] > 0) == (batch.labels > 0.5)
        self.accuracy.update(right, weight=batch.rows >= 0)

    @override
    def on_validation_epoch_end(self) -> None:
        self.log(f"{self.evaluation_stage}/accuracy", self.accuracy.compute().float(), prog_bar=True, batch_size=1)
        self.accuracy.reset()

    test_step, on_test_epoch_end = validation_step, on_validation_epoch_end


if __name__ == "__main__":
    train, name = str(Path(__file__).parents[1] / "train.py"), f"your-family-{time.strftime('%m%d-%H%M%S')}"
    options = [
        "--model", "examples.your_family.RuleModel", "--data", "examples.your_family.RuleData",
        "--model.init_args.learning_rate", "0.01", "--data.init_args.batch_size", "64", "--trainer.max_epochs", "3",
        "--best_checkpoint.monitor", "val/accuracy", "--best_checkpoint.mode", "max", *sys.argv[1:],
    ]  # fmt: skip
    for command in (["fit", "--run_name", name, *options], ["test", "--run_name", name]):
        subprocess.run([sys.executable, train, *command], check=True)
