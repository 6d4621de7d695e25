"""Defines the protocol of the data module, as LockstepModule uses it.

A family extends it in `datamodules/FAMILY/interface.py`. mypy checks both the module and the family's data module
against it, so neither imports the other.
"""

from typing import Any, Protocol

from typing_extensions import TypeVar

from engine.data.batch_plan import BatchPlan
from engine.data.batched_dataset import BatchedDataset
from engine.data.stream import StreamDataset
from engine.datamodule import LockstepDataModule


class LockstepData(Protocol):
    """Attributes that every module uses. LockstepDataModule implements and documents them."""

    same_epoch: bool
    """Whether all epochs have the same batches; the module sets it for `trainer.overfit_batches`."""

    @property
    def plan(self) -> BatchPlan:
        """Split of the global batch over ranks and micro-batches, in samples."""

    @property
    def steps_in_epoch(self) -> int | None:
        """Optimizer steps of a full epoch; None for a stream."""

    @property
    def train_set(self) -> BatchedDataset[Any] | StreamDataset[Any]:
        """Data set of micro-batches to train on; available after `setup("fit")`."""


DataT = TypeVar("DataT", bound=LockstepData, default=LockstepDataModule, covariant=True)
"""Type of a module's data: `class MyModule(LockstepModule[MyData])` has `self.data` of type MyData."""
