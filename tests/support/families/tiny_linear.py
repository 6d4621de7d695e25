"""Defines the smallest family: a linear model with steps of less than a millisecond, which records its samples."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import SumMetric

from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from engine.data.stream import StreamDataset
from engine.datamodule import LockstepDataModule
from engine.determinism.stateless_rng import global_seed, hash_permutation, hash_uniform
from engine.module import LockstepModule
from engine.optim.global_loss_mean import LossSum

TINY_FAMILY = ["--config", str(Path(__file__).with_suffix(".yaml"))]

FEATURES = 4


class Rows(NamedTuple):
    """A micro-batch."""

    epoch: int
    rows: NDArray[np.int64]  # [b] positions in the data's order, PADDING_INDEX for a row that weighs nothing
    samples: NDArray[np.int64]  # [b], PADDING_INDEX likewise
    features: NDArray[np.float32]  # [b, FEATURES]
    targets: NDArray[np.float32]  # [b]
    terms: NDArray[np.int64]  # [b] loss terms of a sample, 1 to 3: a mean of means would be another

    @classmethod
    def of(cls, epoch: int, rows: NDArray[np.int64], samples: NDArray[np.int64]) -> "Rows":
        features = hash_uniform(samples[:, None], np.arange(FEATURES)).astype(np.float32)
        targets = hash_uniform(samples, FEATURES).astype(np.float32)
        return cls(epoch, rows, samples, features, targets, np.where(samples == PADDING_INDEX, 0, 1 + samples % 3))


class Fault(NamedTuple):
    """Fault that strikes when a sample is loaded."""

    kind: Literal["raise", "exit", "kill", "bad"]
    sample: int

    def strike(self, samples: NDArray[np.int64]) -> None:
        if self.sample not in samples:
            return
        if self.kind == "exit":
            os._exit(3)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "bad":
            raise BadSampleError(f"sample {self.sample}: injected")
        raise ValueError(f"injected at sample {self.sample}")


class Numbers:
    """A sized data set."""

    def __init__(self, length: int, fault: Fault | None = None) -> None:
        self.length, self.fault = length, fault

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, request: MicroBatchRequest) -> Rows:
        if self.fault is not None:
            self.fault.strike(request.indices)
        return Rows.of(request.epoch, request.indices, request.indices)


class NumberStream(StreamDataset[int]):
    """The same samples as a stream, in another order each epoch. `short`: (process, records that it lacks)."""

    identity = "numbers"

    def __init__(self, length: int, fault: Fault | None = None, short: tuple[int, int] = (0, 0)) -> None:
        self.length, self.fault, self.short = length, fault, short

    def records(self, epoch: int) -> Iterator[int]:
        process, lacking = self.short
        here = int(os.environ.get("RANK", "0")) == process
        order = hash_permutation(self.length, global_seed(), epoch)
        return iter(order[: self.length - lacking * here].tolist())

    def batch(self, epoch: int, positions: NDArray[np.int64], records: list[int]) -> Rows:
        samples = np.where(positions == PADDING_INDEX, PADDING_INDEX, records)
        if self.fault is not None:
            self.fault.strike(samples)
        return Rows.of(epoch, positions, samples)


class TinyData(LockstepDataModule):
    """Samples 0 to `length` - 1, sized or as a stream, with faults to order.

    Args:
        length: training samples.
        evaluation_length: samples to validate, test and predict.
        stream: whether all sets are streams.
        fault: what happens at `fault_sample` of the training set.
        fault_sample: see `fault`.
        short_process: of a stream, the process that gets `short_by` records fewer.
        short_by: see `short_process`.
        loading: see LockstepDataModule.
    """

    def __init__(
        self,
        length: int = 50,
        evaluation_length: int = 11,
        stream: bool = False,
        fault: Literal["raise", "exit", "kill", "bad"] | None = None,
        fault_sample: int = 0,
        short_process: int = 0,
        short_by: int = 0,
        **loading: Any,
    ) -> None:
        super().__init__(**loading)
        self.length, self.evaluation_length, self.stream = length, evaluation_length, stream
        self.fault = None if fault is None else Fault(fault, fault_sample)
        self.short = short_process, short_by

    def setup(self, stage: str) -> None:
        if self.stream:
            self.train_set = NumberStream(self.length, self.fault, self.short)
        else:
            self.train_set = Numbers(self.length, self.fault)
        evaluated = (NumberStream if self.stream else Numbers)(self.evaluation_length)
        self.validation_set = self.test_set = self.predict_set = evaluated


class TinyModule(LockstepModule):
    """Least squares. Writes what it sees, its gradients and its exact losses into the run's folder.

    Args:
        dropout: share of features dropped in training.
        training: see LockstepModule.
    """

    def __init__(self, dropout: float = 0.0, **training: Any) -> None:
        super().__init__(**training)
        self.dropout = dropout
        self.linear = torch.nn.Linear(FEATURES, 1)
        self.total, self.count = (SumMetric().set_dtype(torch.float64) for _ in range(2))

    def configure_model(self) -> None:
        with torch.no_grad():
            self.linear.weight.copy_(torch.linspace(-1, 1, FEATURES)[None])
            self.linear.bias.zero_()

    def on_train_start(self) -> None:
        super().on_train_start()
        self.begun = self.trainer.global_step

    def training_loss(self, batch: Rows) -> LossSum:
        seen = batch.samples[batch.samples != PADDING_INDEX].tolist()
        self._write(
            f"seen/{self.global_rank}.jsonl",
            {"begun": self.begun, "epoch": batch.epoch, "step": self.trainer.global_step, "samples": seen},
        )
        features = torch.nn.functional.dropout(batch.features, self.dropout)
        return LossSum((self._errors(features, batch.targets) * batch.terms).sum(), batch.terms.sum())

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        super().on_before_optimizer_step(optimizer)
        gradient = torch.cat([parameter.grad.flatten() for parameter in self.parameters()])
        record = {"step": self.trainer.global_step, "gradient": gradient.tolist()}
        self._write(f"gradients/{self.global_rank}.jsonl", record)

    def _errors(self, features: Tensor, targets: Tensor) -> Tensor:
        return (self.linear(features)[:, 0] - targets).square()

    # -- evaluation --------------------------------------------------------------------------------------------------

    def validation_step(self, batch: Rows, batch_idx: int) -> None:
        real = batch.terms > 0
        errors = self._errors(batch.features, batch.targets).double()
        self.total.update((errors * real).sum())
        self.count.update(real.sum())
        if not self.trainer.sanity_checking:
            seen = batch.samples[real].tolist()
            self._write(f"evaluated/{self.global_rank}.jsonl", {"step": self.trainer.global_step, "samples": seen})

    def on_validation_epoch_end(self) -> None:
        loss, count = float(self.total.compute() / self.count.compute()), float(self.count.compute())
        self.total.reset()
        self.count.reset()
        stage = "test" if self.trainer.state.fn == "test" else "val"
        self.log(f"{stage}/loss", loss, batch_size=1)
        if self.global_rank == 0 and not self.trainer.sanity_checking:
            evaluation = {"stage": stage, "step": self.trainer.global_step, "loss": loss, "samples": count}
            self._write("evaluations.jsonl", evaluation)

    test_step, on_test_epoch_end = validation_step, on_validation_epoch_end

    def predict_step(self, batch: Rows, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        scores = self.linear(batch.features)[:, 0].tolist()
        answers = zip(batch.rows.tolist(), batch.samples.tolist(), scores, strict=True)
        return [(row, {"sample": sample, "score": score}) for row, sample, score in answers if row != PADDING_INDEX]

    def _write(self, name: str, record: dict[str, Any]) -> None:
        path = Path(self.trainer.default_root_dir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
